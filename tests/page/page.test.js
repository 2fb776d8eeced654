// The page in a headless Chromium, on a server with chaos routes.
//
//   node --test tests/page/page.test.js                    the test
//   node tests/page/page.test.js --screenshots FOLDER      the test, and pictures of all views
//
// PLAYHOUSE is the program (default: target/debug/playhouse).
// CHROMIUM is the browser (default: /usr/bin/chromium).

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { launch, until } from './browser.js';
import { screenshots } from './screenshots.js';
import { load, serve } from './server.js';

const VIEWS = ['chat', 'house', 'memory', 'traffic'];
const PHONE = { width: 360, height: 740 };

let server;
let browser;
const opened = [];

/** Opens a page that closes at the end of the test `t`. The last test checks its problems. */
async function open(t, options) {
  const page = await browser.open(server.url, options);
  opened.push(page);
  t.after(() => page.context().close());
  return page;
}

/** Makes every answer as long as the test needs, and text to its end, whatever the model. */
const endless = (page, maxTokens) => page.route('**/v1/chat/completions', (route) => {
  const body = JSON.parse(route.request().postData());
  body.max_tokens ??= maxTokens;
  body.min_tokens = body.max_tokens;
  return route.continue({ postData: JSON.stringify(body) });
});

/** Answers with `chunks` instead of the model. */
const canned = (page, ...chunks) => page.route('**/v1/chat/completions', (route) => route.fulfill({
  contentType: 'text/event-stream',
  body: [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join(''),
}));

const ask = async (page, text) => {
  await page.fill('#ask', text);
  await page.press('#ask', 'Enter');
};

const answer = (page) => page.locator('.message.assistant').last();
/** Returns the text of the answer, without its thoughts. */
const textOf = (page) => answer(page).locator(':scope > .prose').textContent();
const isDone = async (page) => (await answer(page).getAttribute('aria-busy')) === null;
const go = async (page, view) => {
  await page.click(`#tab-${view}`);
  await page.waitForSelector(`#view-${view}:not([hidden])`);
};
/** Returns the number of restarts that the page shows. */
const restarts = async (page, room) => {
  const label = await page.locator(`[data-room="${room}"]`).getAttribute('aria-label');
  return Number(label.match(/restarts: (\d+)/)[1]);
};

before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
});

after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0, 'the server ends well');
});

test('an answer streams, tells how long it took, and can be stopped', async (t) => {
  const page = await open(t);
  await endless(page, 300);
  await ask(page, 'Hello');
  const lengths = new Set();
  await until('the end of the answer', async () => {
    lengths.add((await textOf(page)).length);
    return isDone(page);
  });
  assert.ok(lengths.size > 2, `it grew: ${[...lengths]}`);
  const foot = answer(page).locator('.foot');
  assert.match(await foot.textContent(), /^cut off at its limit · 300 tokens · first after .+ tokens\/s$/);

  await page.fill('#max_tokens', '3500');
  await ask(page, 'Go on for ever');
  await until('the beginning', async () => (await textOf(page)).length > 40);
  await page.click('#stop');
  await until('the end', () => isDone(page));
  assert.equal(await foot.textContent(), 'stopped by you');
  await until('the server to be idle', async () => (await (await fetch(`${server.url}/load`)).json()).server_load === 0);
  await page.click('#clear');
  assert.equal(await page.locator('.message').count(), 0);
});

/** A picture of one dark pixel. */
const PICTURE = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
);

test('pictures go with the message, if the model takes them', async (t) => {
  const text = await open(t);
  await until('the models', async () => (await text.locator('#model option').count()) > 0);
  assert.equal(await text.locator('#add-picture').isVisible(), false);

  const page = await open(t);
  await page.route('**/v1/models', async (route) => {
    const response = await route.fetch();
    const models = await response.json();
    models.data.forEach((card) => { card.input_modalities = ['text', 'image']; });
    await route.fulfill({ response, json: models });
  });
  let body;
  await page.route('**/v1/chat/completions', (route) => {
    body = JSON.parse(route.request().postData());
    const chunk = { choices: [{ index: 0, delta: { content: 'A dot.' }, finish_reason: 'stop' }] };
    return route.fulfill({
      contentType: 'text/event-stream',
      body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`,
    });
  });
  await page.reload();
  await page.locator('#add-picture').waitFor();
  const file = { name: 'dot.png', mimeType: 'image/png', buffer: PICTURE };
  await page.setInputFiles('#picture-file', [file, { ...file, name: 'twin.png' }]);
  await page.locator('#pictures img').nth(1).waitFor();
  await page.click('[aria-label="Remove twin.png"]');
  assert.equal(await page.locator('#pictures img').count(), 1);

  // A picture that is dropped, and a file that is none.
  await page.evaluate((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(bytes)], 'dropped.png', { type: 'image/png' }));
    data.items.add(new File(['x'], 'notes.txt', { type: 'text/plain' }));
    document.querySelector('#view-chat').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [...PICTURE]);
  await page.locator('#pictures img').nth(1).waitFor();
  assert.match(await page.locator('.problem').first().textContent(), /notes\.txt/);

  await ask(page, 'What is this?');
  await until('the answer', () => isDone(page));
  const url = `data:image/png;base64,${PICTURE.toString('base64')}`;
  const picture = { type: 'image_url', image_url: { url } };
  assert.deepEqual(body.messages.at(-1).content, [picture, picture, { type: 'text', text: 'What is this?' }]);
  const shown = page.locator('.message.user .picture');
  assert.equal(await shown.count(), 2);
  assert.equal(await shown.first().evaluate((image) => image.naturalWidth), 1);
  assert.equal(await page.locator('#pictures').isVisible(), false);
});

test('a stream that began goes on while rooms go dark and are lit again', async (t) => {
  const page = await open(t);
  await endless(page, 3500);
  await page.fill('#seed', '7');
  await ask(page, 'Tell me a long story');
  await until('the answer in peace', () => isDone(page), 120_000);
  const inPeace = await textOf(page);
  await page.click('#clear');

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

test('answers are shown as text, thoughts folded, calls with a place for results', async (t) => {
  const page = await open(t);
  const evil = '<img src=x onerror=alert(1)> [a](javascript:alert(1)) **bold** `code`\n\n<script>alert(1)</script>';
  await canned(page,
    { choices: [{ delta: { role: 'assistant', content: '' } }] },
    { choices: [{ delta: { reasoning: 'Let me <b>think</b>.' } }] },
    { choices: [{ delta: { content: evil } }] },
    { choices: [{ delta: { tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{"city":' } }] } }] },
    { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] }, finish_reason: 'tool_calls' }] });
  await ask(page, 'What is the weather?');
  await until('the answer', () => isDone(page));
  const shown = answer(page);
  const text = await shown.locator(':scope > .prose').textContent();
  assert.ok(text.includes('<img src=x onerror=alert(1)>') && text.includes('<script>'), text);
  assert.equal(await shown.locator('img, script, a').count(), 0);
  assert.equal(await shown.locator('strong').textContent(), 'bold');
  const thoughts = shown.locator('.thoughts');
  assert.equal(await thoughts.getAttribute('open'), null);
  assert.equal(await thoughts.locator('.prose').textContent(), 'Let me <b>think</b>.');
  assert.match(await shown.locator('.call').textContent(), /weather.*"city": "Oslo"/s);
  await page.unroute('**/v1/chat/completions');
  let sent;
  await page.route('**/v1/chat/completions', (route) => {
    sent = JSON.parse(route.request().postData());
    return route.fulfill({ status: 400, contentType: 'application/json', body: '{"error": {"message": "no more"}}' });
  });
  page.problems.length = 0;
  await page.fill('.result textarea', '{"degrees": 3}');
  await page.click('.result button');
  await page.locator('.message.problem').waitFor();
  assert.equal(await page.textContent('.message.problem'), 'no more');
  assert.deepEqual(sent.messages.at(-1), { role: 'tool', tool_call_id: 'c1', content: '{"degrees": 3}' });
  assert.equal(sent.messages.at(-2).tool_calls[0].function.name, 'weather');
  // The browser reports the 400, which is right.
  assert.ok(page.problems.every((problem) => /status of 400/.test(problem)), page.problems);
  page.problems.length = 0;
});

test('a question that gets no answer is taken back', async (t) => {
  const page = await open(t);
  const sent = [];
  await page.route('**/v1/chat/completions', (route) => {
    sent.push(JSON.parse(route.request().postData()).messages);
    return route.fulfill({ status: 400, contentType: 'application/json', body: '{"error": {"message": "no more"}}' });
  });
  const isBack = async () => (await page.inputValue('#ask')) === 'Hello';
  await ask(page, 'Hello');
  await page.locator('.message.problem').waitFor();
  assert.ok(await isBack());
  assert.equal(await page.locator('.message:not(.problem)').count(), 0);
  await page.press('#ask', 'Enter');
  await until('another request', () => sent.length === 2);
  assert.deepEqual(sent[1], [{ role: 'user', content: 'Hello' }]);

  await until('it to be back', isBack);
  await page.click('#clear');
  await page.unroute('**/v1/chat/completions');
  // An answer that never begins.
  await page.route('**/v1/chat/completions', () => {});
  await ask(page, 'Hello');
  await page.click('#stop');
  await until('it to be back', isBack);
  assert.equal(await page.locator('.message').count(), 0);
  assert.ok(await page.locator('.empty').isVisible());
  // The browser reports the 400, which is right.
  assert.ok(page.problems.every((problem) => /status of 400/.test(problem)), page.problems);
  page.problems.length = 0;
});

test('the probability of a token is shown as colour, with its alternatives', async (t) => {
  const page = await open(t);
  await endless(page, 12);
  await page.check('#logprobs');
  await ask(page, 'Hello');
  await until('the answer', async () => (await page.locator('.message.assistant').count()) === 1 && isDone(page));
  assert.equal(await page.locator('.token').count(), 12);
  await page.locator('.token').first().focus();
  await page.keyboard.press('ArrowRight');
  const tip = page.locator('#tip');
  assert.ok(await tip.isVisible());
  assert.ok((await tip.locator('li').count()) >= 5);
  assert.match(await tip.textContent(), /%/);
});

test('the token that ends an answer is a mark behind it', async (t) => {
  const page = await open(t);
  await page.check('#logprobs');
  await page.fill('#temperature', '0');
  await ask(page, 'Who are you?');
  await until('the answer', () => isDone(page));
  const answered = await page.locator('.message.assistant .tokens').textContent();
  assert.match(answered, /^I am .*[.]∎$/);
});

test('invalid input is reported before it is sent', async (t) => {
  const page = await open(t);
  await page.fill('#tools', '[{"type": ');
  await ask(page, 'Hello');
  assert.match(await page.textContent('#tools-problem'), /^Tools: /);
  assert.equal(await page.locator('.message').count(), 0);
  await page.fill('#tools', '');
  await page.fill('#temperature', '9');
  await ask(page, 'Hello');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'temperature');
  assert.equal(await page.locator('.message').count(), 0);
});

test('colours, names and roles are as they should be, by day and by night', async (t) => {
  const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(t, { colorScheme, reducedMotion: 'reduce' });
    await endless(page, 30);
    await ask(page, 'Hello');
    await until('the answer', () => isDone(page));
    const stop = load(server.url, 2);
    try {
      for (const view of VIEWS) {
        await go(page, view);
        if (view === 'traffic') await page.locator('.timeline').first().waitFor();
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

test('no page reported a problem or sent a request elsewhere', () => {
  for (const page of opened) assert.deepEqual(page.problems, []);
});

const asked = process.argv.indexOf('--screenshots');
test('pictures', { skip: asked < 0 && 'not asked for' }, async (t) => {
  const folder = process.argv[asked + 1] ?? 'docs/screenshots';
  await screenshots(folder, { open: (options) => open(t, options), load: () => load(server.url, 7), go, ask });
});
