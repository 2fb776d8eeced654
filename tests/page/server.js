// A server for the test: the program with the demo model, on a free port.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PLAYHOUSE = process.env.PLAYHOUSE ?? `${ROOT}target/debug/playhouse`;
const START_MS = 120_000;

/** Starts the server and waits until it serves. */
export async function serve(...flags) {
  const port = flags.includes('--port') ? [] : ['--port', '0'];
  const args = ['serve', ...port, '--served-model-name', 'demo', '--max-model-len', '4096',
    '--num-gpu-blocks-override', '600', '--allow-chaos', ...flags];
  const child = spawn(PLAYHOUSE, args, { cwd: ROOT, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  const url = await new Promise((found, failed) => {
    const limit = setTimeout(() => failed(new Error(`it does not serve:\n${log}`)), START_MS);
    child.stderr.setEncoding('utf8').on('data', (text) => {
      log = (log + text).slice(-20_000);
      const address = log.match(/http:\/\/127\.0\.0\.1:\d+/);
      if (!address) return;
      clearTimeout(limit);
      found(address[0]);
    });
    child.on('error', failed);
    child.on('exit', (code) => failed(new Error(`it ended with ${code}:\n${log}`)));
  });
  while (!(await fetch(`${url}/health`).catch(() => null))?.ok) {
    await new Promise((wake) => setTimeout(wake, 50));
  }
  const ended = new Promise((done) => { child.on('exit', done); });
  const stop = async () => {
    child.kill('SIGTERM');
    return ended;
  };
  return { url, stop, log: () => log };
}

/** Sends requests that keep the engine busy. Returns a function that stops them. */
export function load(url, clients) {
  const controller = new AbortController();
  const ask = async (client) => {
    for (let turn = 0; !controller.signal.aborted; turn += 1) {
      const body = {
        prompt: `${'Once upon a time there was a house. '.repeat(8)}Room ${client}.`,
        max_tokens: 200 + 40 * client,
        ignore_eos: true,
        seed: turn,
      };
      const answer = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        signal: controller.signal,
      });
      await answer.text();
    }
  };
  const all = Array.from({ length: clients }, (_, i) => ask(i).catch(() => {}));
  return async () => {
    controller.abort();
    await Promise.all(all);
  };
}
