// A button that sends some requests, so that an idle server has something to show. They share their
// beginning, and with it the first blocks.

import { request } from './api.js';
import { $ } from './dom.js';

const NUM_REQUESTS = 8;
const TOKENS_MAX = 400;
const SHARED = 'Once upon a time there was a house with many rooms. In each room somebody worked, and each one knew what to do. '
  + 'When one of them fell asleep, another came and went on with the same work, and the people outside never noticed. ';

let running = null;

function draw() {
  $('trial').textContent = running ? 'Stop them' : `Send ${NUM_REQUESTS} requests`;
}

/** Returns the body of a request, which takes at most half of the context. */
export const bodyOf = (i, maxModelLen) => ({
  prompt: `${SHARED.repeat(2)}In room ${i + 1}`,
  max_tokens: Math.max(1, Math.min(TOKENS_MAX, maxModelLen >> 1) - 20 * i),
  ignore_eos: true,
  seed: i,
});

async function send(maxModelLen) {
  running = new AbortController();
  const { signal } = running;
  $('trial-problem').hidden = true;
  draw();
  try {
    await Promise.all(Array.from({ length: NUM_REQUESTS }, async (_, i) => {
      const answer = await request('v1/completions', { body: bodyOf(i, maxModelLen), signal });
      await answer.text();
    }));
  } catch (error) {
    if (!signal.aborted) {
      running.abort();
      $('trial-problem').textContent = `The requests failed: ${error.message}`;
      $('trial-problem').hidden = false;
    }
  }
  running = null;
  draw();
}

/** Makes the button work. `modelOf` returns the facts about the model. */
export function startTrial(modelOf) {
  draw();
  $('trial').addEventListener('click', () => {
    if (running) running.abort();
    else send(modelOf().max_model_len);
  });
}
