// The page in a headless Chromium, on a server with chaos routes: all views but the conversations.
//
//   node --test tests/page/page.test.js                    the test
//   node tests/page/page.test.js --screenshots FOLDER      the test, and pictures of all views
//
// PLAYHOUSE is the program (default: target/debug/playhouse).
// CHROMIUM is the browser (default: /usr/bin/chromium).

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { CORE } from '../../src/server/page/engines.js';
import { until } from './browser.js';
import { screenshots } from './screenshots.js';
import { load, serve } from './server.js';
import {
  PHONE, VIEWS, answer, answering, ask, browser, checkProblems, converse, endless, forgive, go, isDone, open, opened, refusal, restarts, server, slow, textOf,
} from './setup.js';

test('a stream that began goes on while rooms go dark and are lit again', async (t) => {
  const page = await open(t);
  await endless(page, 3500);
  await page.click('#advanced > summary');
  await page.fill('#seed', '7');
  await ask(page, 'Tell me a long story');
  await until('the answer in peace', () => isDone(page), 120_000);
  const inPeace = await textOf(page);
  await page.click('#new');

  const calm = await slow(t, 10);
  await ask(page, 'Tell me a long story');
  await until('the beginning', async () => (await textOf(page)).length > 20);
  await go(page, 'house');
  for (const room of ['scheduler/0', 'kv_cache/0', 'worker/0', 'detokenizer/0', 'detokenizer/1']) {
    const before = await restarts(page, room);
    await page.locator(`[data-kill="${room}"]`).click();
    await until(`${room} was replaced`, async () => (await restarts(page, room)) > before);
    // The answer must still run; otherwise the test does not show that it survives.
    if (room === 'scheduler/0') assert.equal(await isDone(page), false);
  }
  await page.locator('[data-room="streamer/0"]').click();
  const before = await restarts(page, 'streamer/0');
  await page.locator('#room [data-how="panic"]').click();
  await until('the streamer was replaced', async () => (await restarts(page, 'streamer/0')) > before);
  await until('word of it', async () => /Streamer 1 was replaced/.test(await page.textContent('#events')));
  assert.match(await page.textContent('#events'), /epoch \d+ began/);
  await go(page, 'chat');
  await calm();
  await until('the end of the answer', () => isDone(page), 120_000);
  assert.equal(await textOf(page), inPeace);
  assert.equal(await page.locator('.problem[role=alert]:visible').count(), 0);
});

test('plots, blocks, requests and steps move under load', async (t) => {
  const page = await open(t);
  await go(page, 'traffic');
  const plot = page.locator('#plots canvas').first();
  const picture = () => plot.evaluate((canvas) => canvas.toDataURL());
  const stop = load(server.url, 6);
  try {
    await until('tokens a second', async () => /output [1-9]/.test(await plot.getAttribute('aria-label')));
    const first = await picture();
    await until('another picture', async () => (await picture()) !== first);
    await until('a latency', async () => {
      const label = await page.locator('#plots canvas').last().getAttribute('aria-label');
      return /median [\d.]+ m?s/.test(label);
    });
    await until('requests', async () => (await page.locator('#requests tbody tr').count()) >= 4);
    await until('their steps', async () => {
      const labels = await page.locator('.timeline canvas').evaluateAll((all) => all.map((one) => one.ariaLabel));
      return labels.some((label) => /[1-9]\d* tokens of the prompt.* [1-9]\d* decoded/.test(label));
    });
    await go(page, 'memory');
    await until('owners', async () => (await page.locator('#owners .bar').count()) >= 4);
    const used = await page.textContent('#memory-facts .figure');
    assert.ok(Number.parseFloat(used) > 0, used);
    await go(page, 'house');
    const flow = page.locator('.flow.busy[data-edge="scheduler->worker"]');
    await flow.waitFor({ state: 'attached' });
    const offset = () => flow.evaluate((line) => line.style.strokeDashoffset);
    const before = await offset();
    await until('messages that walk', async () => (await offset()) !== before);
  } finally {
    await stop();
  }
});

test('a room tells what its actor holds', async (t) => {
  const page = await open(t);
  await go(page, 'house');
  await page.locator('[data-room="ledger/0"]').click();
  assert.match(await page.textContent('#room'), /ground state.*Open requests\d+Tokens committed/);
  const stop = load(server.url, 3);
  try {
    const room = page.locator('.room', { has: page.locator('[data-room="ledger/0"]') });
    await until('its requests', async () => (await room.locator('.holds').textContent()) === '3 requests');
    await until('the same beside it', async () => (await page.locator('#room .held dd').first().textContent()) === '3');
  } finally {
    await stop();
  }
});

test('the text of every room is at least eleven pixels high', async (t) => {
  for (const options of [{}, PHONE]) {
    const page = await open(t, options);
    await go(page, 'house');
    await page.locator('.room').first().waitFor();
    const low = await page.locator('.room text').evaluateAll((all) => all.filter((one) => one.textContent).map((one) => {
      const scale = one.ownerSVGElement.getScreenCTM().a;
      return [one.textContent, Number.parseFloat(getComputedStyle(one).fontSize) * scale];
    }).filter(([, pixels]) => pixels < 11));
    assert.deepEqual(low, []);
  }
});

test('an idle server gets requests to show, and changes stay visible for a moment', async (t) => {
  const page = await open(t);
  await slow(t, 5);
  await go(page, 'memory');
  await page.locator('#owners li').first().waitFor();
  const picture = () => page.locator('#blocks').evaluate((canvas) => canvas.toDataURL());
  await page.click('#trial');
  assert.equal(await page.textContent('#trial'), 'Stop them');
  await until('owners', async () => (await page.locator('#owners .bar').count()) >= 2);
  await until('shared blocks in the plot', async () => /held [1-9]/.test(await page.locator('#memory-plot canvas').getAttribute('aria-label')));
  await until('the end', async () => (await page.textContent('#trial')) === 'Send 8 requests', 60_000);
  await until('nobody', async () => (await page.locator('#owners .bar').count()) === 0);
  const bright = await picture();
  await until('the changes to fade', async () => (await picture()) !== bright);
  await page.click('#trial');
  await page.click('#trial');
  await until('the end', async () => (await page.textContent('#trial')) === 'Send 8 requests');
  await page.route('**/v1/completions', (route) => route.fulfill({ status: 429, contentType: 'application/json', body: '{"error": {"message": "full"}}' }));
  await page.click('#trial');
  await page.locator('#trial-problem').waitFor();
  assert.equal(await page.textContent('#trial-problem'), 'The requests failed: full');
  forgive(page, 429);
});

test('nothing moves if the user prefers reduced motion', async (t) => {
  const page = await open(t, { reducedMotion: 'reduce' });
  await go(page, 'house');
  const stop = load(server.url, 2);
  try {
    await page.locator('.flow.busy').first().waitFor({ state: 'attached' });
    assert.equal(await page.locator('.flow').evaluateAll((all) => all.filter((one) => one.style.strokeDashoffset).length), 0);
  } finally {
    await stop();
  }
});

test('the keyboard is enough', async (t) => {
  const page = await open(t);
  await endless(page, 20);
  const focused = () => page.evaluate(() => {
    const { activeElement: one } = document;
    return one.id || one.dataset.room || (one.dataset.kill && `kill ${one.dataset.kill}`) || one.className;
  });
  const tabTo = async (wanted) => {
    const seen = [];
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press('Tab');
      seen.push(await focused());
      if (seen.at(-1) === wanted) return;
    }
    assert.fail(`${wanted} is not reached: ${seen}`);
  };
  await tabTo('skip');
  await tabTo('skip');
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'ask', 'the second link leads to the message box');
  await page.reload();
  await tabTo('tab-chat');
  await tabTo('ask');
  await page.keyboard.type('Hello');
  await page.keyboard.press('Enter');
  await until('the answer', async () => (await page.locator('.message.assistant').count()) === 1 && isDone(page));
  await page.reload();
  await tabTo('tab-chat');
  await page.keyboard.press('ArrowRight');
  assert.equal(await focused(), 'tab-house');
  await page.locator('[data-room="scheduler/0"]').waitFor();
  await tabTo('scheduler/0');
  await page.keyboard.press('Enter');
  assert.match(await page.textContent('#room'), /Scheduler/);
  const before = await restarts(page, 'scheduler/0');
  await tabTo('kill scheduler/0');
  await page.keyboard.press('Enter');
  await until('a new scheduler', async () => (await restarts(page, 'scheduler/0')) > before);
  await page.focus('#tab-house');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.getAttribute('#tab-memory', 'aria-selected'), 'true');
  await tabTo('blocks');
  await page.keyboard.press('ArrowRight');
  await until('word of the block', async () => /^Block 2: /.test(await page.textContent('#block-told')));
  await page.focus('#tab-memory');
  await page.keyboard.press('End');
  assert.equal(await focused(), 'tab-traffic');
  // Keys that come faster than the address changes.
  const shown = await page.evaluate(() => {
    for (const key of ['Home', 'ArrowRight', 'ArrowRight']) {
      document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    }
    return document.querySelector('[role="tab"][aria-selected="true"]').id;
  });
  assert.equal(shown, 'tab-memory');
});

test('on a phone nothing is wider than the screen', async (t) => {
  const page = await open(t, { ...PHONE, hasTouch: true });
  await endless(page, 60);
  await ask(page, 'Hello '.repeat(30) + 'x'.repeat(200));
  await until('the answer', () => isDone(page));
  const stop = load(server.url, 3);
  try {
    for (const view of VIEWS) {
      await go(page, view);
      if (view === 'house') await page.locator('.room').first().waitFor();
      if (view === 'traffic') await page.locator('.timeline').first().waitFor();
      const [whole, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(whole <= shown, `${view}: ${whole} of ${shown}`);
    }
  } finally {
    await stop();
  }
});

const MARKDOWN = ['# Title', '| a | b |', '|---|---|', '| 1 | 2 |', '', '- [x] done', '', '> quote', '', '```js', 'const a = "b"; // c', '```', '', 'and $x^2$'].join('\n');

test('colours, names and roles are as they should be, by day and by night', async (t) => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(t, { colorScheme, reducedMotion: 'reduce' });
    await answering(page, ({ messages }) => (messages.length > 1 ? refusal(503, 'recovering') : MARKDOWN));
    await page.click('#advanced > summary');
    await page.setInputFiles('#file', { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('note') });
    await page.locator('#attachments li').waitFor();
    await converse(page, 'Hello');
    await page.locator('.formula math').waitFor();
    await page.locator('.hl-comment').waitFor();
    await ask(page, 'Again');
    await page.locator('.message.problem').waitFor();
    forgive(page, 503);
    const stop = load(server.url, 2);
    try {
      for (const view of VIEWS) {
        await go(page, view);
        if (view === 'traffic') await page.locator('.timeline').first().waitFor();
        if (view === 'chat') await page.locator('.message.user').first().locator('.edit').click();
        await page.evaluate(axe);
        const { violations } = await page.evaluate('axe.run()');
        const told = violations.flatMap(({ id, nodes }) => nodes.map(({ html, any }) => `${id}: ${html} ${any[0]?.message ?? ''}`));
        assert.deepEqual(told, [], `${view}, ${colorScheme}`);
      }
    } finally {
      await stop();
    }
  }
});

test('a server without chaos routes has no buttons for them', async (t) => {
  const snapshot = await (await fetch(`${server.url}/house`)).json();
  const page = await open(t);
  await page.route('**/house/events', (route) => route.fulfill({
    contentType: 'text/event-stream',
    body: `data: ${JSON.stringify({ ...snapshot, has_chaos: false })}\n\n`,
  }));
  await page.goto(`${server.url}/#/house`);
  await page.reload();
  await page.locator('.room').first().waitFor();
  assert.equal(await page.locator('.room').count(), snapshot.actors.length);
  assert.equal(await page.locator('[data-kill], [data-how]').count(), 0);
  assert.match(await page.textContent('#room'), /started with --allow-chaos/);
});

test('of several engines the page shows the one that is chosen', async (t) => {
  const snapshot = await (await fetch(`${server.url}/house`)).json();
  const cache = (blocks) => ({
    age_ms: 0, num_blocks: blocks, num_free: blocks, num_cached: 0, num_shared: 0, blocks_per_cell: 1, runs: [[blocks, 0, 0, 0]],
  });
  const engines = [64, 96].map((blocks) => ({ ...snapshot.engines[0], kv_cache: cache(blocks) }));
  const others = snapshot.actors.filter(({ role }) => CORE.has(role)).map((actor) => ({ ...actor, index: 1 }));
  const page = await open(t);
  await go(page, 'memory');
  await page.locator('#memory-facts h2').first().waitFor();
  assert.equal(await page.isVisible('#engine-choice'), false, 'there is one engine');
  await page.route('**/house/events', (route) => route.fulfill({
    contentType: 'text/event-stream',
    body: `data: ${JSON.stringify({ ...snapshot, engines, actors: [...snapshot.actors, ...others] })}\n\n`,
  }));
  await page.goto(`${server.url}/#/memory`);
  await page.reload();
  await until('the first engine', async () => /^64 blocks/.test(await page.textContent('#memory-note')));
  await page.selectOption('#engine', '1');
  await until('the other engine', async () => /^96 blocks/.test(await page.textContent('#memory-note')));
  await go(page, 'house');
  await page.locator('[data-room="scheduler/1"]').waitFor();
  assert.equal(await page.locator('[data-room="scheduler/0"]').count(), 0);
  assert.equal(await page.locator('.room').count(), snapshot.actors.length);
  await go(page, 'chat');
  assert.equal(await page.isVisible('#engine-choice'), false);
});

test('a server with a key asks for it, and again when it is wrong', async () => {
  const guarded = await serve('--api-key', 'open-sesame');
  try {
    const page = await browser.open(guarded.url);
    const dialog = page.locator('#key-dialog');
    await dialog.waitFor();
    await page.fill('#key', 'wrong');
    await page.keyboard.press('Enter');
    await page.locator('#key-problem').waitFor();
    await page.fill('#key', 'open-sesame');
    await page.keyboard.press('Enter');
    await until('the lamp', async () => (await page.getAttribute('#status', 'data-health')) === 'ready');
    await until('the model', async () => (await page.locator('#model option').count()) === 1);
    await endless(page, 10);
    await ask(page, 'Hello');
    await until('the answer', async () => (await page.locator('.message.assistant').count()) === 1 && isDone(page));
    assert.match(await answer(page).locator('.foot').textContent(), /10 tokens/);
    assert.ok(page.problems.every((problem) => /status of 401/.test(problem)), page.problems);
  } finally {
    await guarded.stop();
  }
});

test('a model that ranks texts has a search in place of a chat', async () => {
  const pooling = await serve('--runner', 'pooling');
  const page = await browser.open(pooling.url);
  opened.push(page);
  try {
    await page.waitForSelector('#view-search:not([hidden])');
    assert.equal(await page.isVisible('#tab-chat'), false);
    await page.fill('#search-texts', 'It rained.\n\nThe curtain rose.');
    await page.press('#search-query', 'Enter');
    await until('a problem', () => page.isVisible('#search-problem'));
    await page.fill('#search-query', 'The curtain rose.');
    await page.press('#search-query', 'Enter');
    await until('results', async () => (await page.locator('#search-found li').count()) === 2);
    assert.match(await page.locator('#search-found li').first().textContent(), /1\.000.*The curtain rose/);
  } finally {
    await page.context().close();
    await pooling.stop();
  }
});

test('the page finds the server again', async () => {
  const first = await serve();
  const page = await browser.open(first.url);
  await until('the lamp', async () => (await page.getAttribute('#status', 'data-health')) === 'ready');
  await first.stop();
  await until('word of the end', async () => (await page.getAttribute('#status', 'data-health')) === 'unknown');
  const second = await serve('--port', new URL(first.url).port);
  try {
    await until('the lamp again', async () => (await page.getAttribute('#status', 'data-health')) === 'ready');
  } finally {
    await second.stop();
  }
});

checkProblems();

const asked = process.argv.indexOf('--screenshots');
test('pictures', { skip: asked < 0 && 'not asked for' }, async (t) => {
  const folder = process.argv[asked + 1] ?? 'docs/screenshots';
  await screenshots(folder, { open: (options) => open(t, options), load: () => load(server.url, 7), go, converse });
});
