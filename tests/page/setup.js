// What the tests of the page share: one server, one browser, and a user's steps.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, until } from './browser.js';
import { serve } from './server.js';

export const VIEWS = ['chat', 'house', 'memory', 'traffic'];
export const PHONE = { width: 360, height: 740 };

export let server;
export let browser;
export const opened = [];

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
});

after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0, 'the server ends well');
});

/** Opens a page that closes at the end of the test `t`. The last test checks its problems. */
export async function open(t, options) {
  const page = await browser.open(server.url, options);
  opened.push(page);
  t.after(() => page.context().close());
  return page;
}

/** Makes every answer as long as the test needs, and text to its end, whatever the model. */
export const endless = (page, maxTokens) => page.route('**/v1/chat/completions', (route) => {
  const body = JSON.parse(route.request().postData());
  body.max_tokens ??= maxTokens;
  body.min_tokens = body.max_tokens;
  return route.continue({ postData: JSON.stringify(body) });
});

const post = async (path, body) => {
  const answer = await fetch(`${server.url}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200, await answer.text());
};

/**
 * Makes each step of the server last about `stepMs` longer until the end of the test `t`: a step
 * waits for its blocks. So an answer lasts as long as the test needs, however fast the machine is.
 * Returns a function that ends the delay earlier.
 */
export async function slow(t, stepMs) {
  const calm = () => post('/chaos/calm', {});
  t.after(calm);
  // The delay of a message is random, up to this maximum.
  await post('/chaos/edges', { edge: 'scheduler->kv_cache', delay_ms: 2 * stepMs });
  return calm;
}

const stream = (chunks) => ({
  contentType: 'text/event-stream',
  body: [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join(''),
});

/** Returns the chunks of an answer with this text. */
export const saying = (content) => [{ model: 'demo', choices: [{ delta: { content }, finish_reason: 'stop' }] }];

/** Answers with `chunks` instead of the model. */
export const canned = (page, ...chunks) => page.route('**/v1/chat/completions', (route) => route.fulfill(stream(chunks)));

/** Answers with the texts that `next` returns for a request. Returns the requests. */
export async function answering(page, next) {
  const bodies = [];
  await page.route('**/v1/chat/completions', (route) => {
    bodies.push(JSON.parse(route.request().postData()));
    const answer = next(bodies.at(-1), bodies.length);
    return route.fulfill(typeof answer === 'string' ? stream(saying(answer)) : answer);
  });
  return bodies;
}

/** Returns the answer of a server that refuses. */
export const refusal = (status, message) =>
  ({ status, contentType: 'application/json', body: JSON.stringify({ error: { message } }) });

/** Sends a question: with the key, and on a touch screen with the button. */
export const ask = async (page, text) => {
  await page.fill('#ask', text);
  const isTouched = await page.evaluate(() => matchMedia('(hover: none) and (pointer: coarse)').matches);
  if (isTouched) await page.click('#send');
  else await page.press('#ask', 'Enter');
};

export const answer = (page) => page.locator('.message.assistant').last();
/** Returns the text of the answer, without its thoughts. */
export const textOf = (page) => answer(page).locator(':scope > .prose').textContent();
/** Returns whether the conversation ends with a complete answer, or with what went wrong. */
export const isDone = (page) => page.evaluate(() => {
  const last = document.querySelector('#messages').lastElementChild;
  return last !== null && last.matches('.assistant:not([aria-busy]), .problem') && document.querySelector('#stop').hidden;
});
/** Asks, and waits for the end of the answer. Returns its text. */
export const converse = async (page, text) => {
  await ask(page, text);
  await until('the answer', () => isDone(page));
  return textOf(page);
};
export const go = async (page, view) => {
  await page.click(`#tab-${view}`);
  await page.waitForSelector(`#view-${view}:not([hidden])`);
};
/** Returns the number of restarts that the page shows. */
export const restarts = async (page, room) => {
  const label = await page.locator(`[data-room="${room}"]`).getAttribute('aria-label');
  return Number(label.match(/restarts: (\d+)/)[1]);
};

/** The browser reports answers with an error status, which is right. */
export function forgive(page, ...statuses) {
  const isRight = (problem) => statuses.some((status) => problem.includes(`status of ${status}`));
  assert.ok(page.problems.every(isRight), page.problems);
  page.problems.length = 0;
}

/** The last test of a file. */
export const checkProblems = () => test('no page reported a problem or sent a request elsewhere', () => {
  for (const page of opened) assert.deepEqual(page.problems, []);
});
