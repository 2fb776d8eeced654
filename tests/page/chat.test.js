// Questions and answers in a headless Chromium: what is sent, and what the page shows.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from './browser.js';
import {
  answer, answering, ask, canned, checkProblems, converse, endless, forgive, isDone, open, PHONE, refusal, server, slow,
  textOf,
} from './setup.js';

/** A picture of one dark pixel. */
const PICTURE = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
);

/** Pretends that the model takes these kinds of content. */
const taking = (page, ...kinds) => page.route('**/v1/models', async (route) => {
  const response = await route.fetch();
  const models = await response.json();
  models.data.forEach((card) => { card.input_modalities = ['text', ...kinds]; });
  await route.fulfill({ response, json: models });
});

test('an answer streams, tells its rate while it does, and can be stopped', async (t) => {
  const page = await open(t);
  await endless(page, 1200);
  await slow(t, 3);
  await ask(page, 'Hello');
  const lengths = new Set();
  const feet = new Set();
  await answer(page).waitFor();
  await until('the end of the answer', async () => {
    lengths.add((await textOf(page)).length);
    feet.add(await answer(page).locator('.foot').textContent());
    return isDone(page);
  });
  assert.ok(lengths.size > 2, `it grew: ${[...lengths]}`);
  const foot = answer(page).locator('.foot');
  assert.match(await foot.textContent(), /^cut off at its limit · 1200 tokens · first after .+ tokens\/s$/);
  assert.ok([...feet].some((text) => /^\d+ tokens · .* tokens\/s$/.test(text)), `the rate while it streams: ${[...feet]}`);
  assert.equal(await answer(page).locator('h2').textContent(), 'demo', 'the model answers');

  await page.fill('#max_tokens', '2700');
  await ask(page, 'Go on for ever');
  await page.locator('.message.assistant').nth(1).waitFor();
  await until('the beginning', async () => (await textOf(page)).length > 40);
  await page.click('#stop');
  await until('the end', () => isDone(page));
  assert.match(await answer(page).locator('.foot').textContent(), /^stopped by you/);
  await until('the server to be idle', async () => (await (await fetch(`${server.url}/load`)).json()).server_load === 0);
});

test('Escape stops an answer, and its text stays', async (t) => {
  const page = await open(t);
  await endless(page, 3500);
  await slow(t, 5);
  await ask(page, 'Go on for ever');
  await answer(page).waitFor();
  await until('the beginning', async () => (await textOf(page)).length > 40);
  await page.click('[aria-label^="Delete Go on"]');
  await page.keyboard.press('Escape');
  await page.locator('#confirm').waitFor({ state: 'hidden' });
  assert.ok(await page.isVisible('#stop'), 'a key of a dialog stops nothing');
  await page.keyboard.press('Escape');
  await until('the end', () => isDone(page));
  assert.ok((await textOf(page)).length > 40);
});

test('the view follows the answer, unless its user reads further up', async (t) => {
  const page = await open(t, { height: 420 });
  await endless(page, 3500);
  await slow(t, 5);
  await ask(page, 'Go on for ever');
  const place = () => page.locator('#messages').evaluate(({ scrollTop, scrollHeight, clientHeight }) =>
    ({ top: scrollTop, rest: scrollHeight - scrollTop - clientHeight }));
  await until('more than fits', async () => (await place()).top > 100);
  await until('the end in view', async () => (await place()).rest < 40);
  await page.locator('#messages').hover();
  await page.mouse.wheel(0, -90);
  await until('a place further up', async () => (await place()).rest > 60);
  const { top } = await place();
  const { length } = await textOf(page);
  await until('more text', async () => (await textOf(page)).length > length + 200);
  assert.equal((await place()).top, top, 'it stays');
  await page.locator('#messages').focus();
  const isLeft = await page.locator('#messages').evaluate((list) =>
    list.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', shiftKey: true, cancelable: true })));
  assert.ok(isLeft, 'the browser selects to the end');
  const end = new Promise((done) => { page.once('console', (message) => done(message.text())); });
  await page.evaluate(() => addEventListener('keydown', (event) => console.log(`${event.key} ${event.defaultPrevented}`), { once: true }));
  await page.keyboard.press('End');
  assert.equal(await end, 'End true', 'the page itself goes to the end, however fast that moves');
  await until('the end again', async () => (await place()).rest < 40);
  const later = (await textOf(page)).length;
  await until('more text', async () => (await textOf(page)).length > later + 200);
  await until('the end still', async () => (await place()).rest < 40);
  await page.click('#stop');
});

test('pictures, sounds and texts go with the message, as far as the model takes them', async (t) => {
  const text = await open(t);
  await until('the models', async () => (await text.locator('#model option').count()) > 0);
  await until('the label', async () => (await text.getAttribute('#attach', 'aria-label')) === 'Attach files: text');
  await text.setInputFiles('#file', [{ name: 'dot.png', mimeType: 'image/png', buffer: PICTURE }]);
  await text.locator('.message.problem').waitFor();
  assert.match(await text.textContent('.message.problem'), /dot\.png is a picture, and this model takes none/);

  const page = await open(t);
  await taking(page, 'image', 'audio');
  const bodies = await answering(page, () => 'A dot.');
  await page.reload();
  await until('the label', async () => /pictures, sounds$/.test(await page.getAttribute('#attach', 'aria-label')));
  const file = { name: 'dot.png', mimeType: 'image/png', buffer: PICTURE };
  const sound = { name: 'beep.wav', mimeType: 'audio/wav', buffer: Buffer.from('RIFF') };
  const notes = { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('Remember the `milk`.\n') };
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('#attach')]);
  await chooser.setFiles([file, { ...file, name: 'twin.png' }, sound, notes]);
  await page.locator('#attachments li').nth(3).waitFor();
  await page.click('[aria-label="Remove twin.png"]');
  assert.equal(await page.locator('#attachments img').count(), 1);

  // A picture that is dropped, and a file that is neither text nor picture.
  await page.evaluate((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(bytes)], 'dropped.png', { type: 'image/png' }));
    data.items.add(new File([Uint8Array.from([0, 1, 255])], 'program.bin', { type: 'application/octet-stream' }));
    document.querySelector('#view-chat').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [...PICTURE]);
  await page.locator('#attachments img').nth(1).waitFor();
  assert.match(await page.locator('.message.problem').first().textContent(), /program\.bin is no text/);

  // A picture from the clipboard.
  await page.evaluate((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(bytes)], 'pasted.png', { type: 'image/png' }));
    document.querySelector('#ask').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  }, [...PICTURE]);
  await page.locator('#attachments img').nth(2).waitFor();

  assert.equal(await converse(page, 'What is this?'), 'A dot.');
  const url = `data:image/png;base64,${PICTURE.toString('base64')}`;
  const picture = { type: 'image_url', image_url: { url } };
  assert.deepEqual(bodies[0].messages.at(-1).content, [
    picture,
    { type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } },
    picture,
    picture,
    { type: 'text', text: 'File notes.md:\n```md\nRemember the `milk`.\n```\n\nWhat is this?' },
  ]);
  const shown = page.locator('.message.user');
  assert.equal(await shown.locator('.picture').count(), 3);
  assert.equal(await shown.locator('.picture').first().evaluate((image) => image.naturalWidth), 1);
  assert.equal(await shown.locator('audio[controls]').count(), 1);
  await shown.locator('.file summary').click();
  assert.match(await shown.locator('.file pre').textContent(), /milk/);
  assert.equal(await page.locator('#attachments').isVisible(), false);

  // They are there after the page was loaded again, and go with the next answer.
  await page.reload();
  await page.locator('.message.user .picture').nth(2).waitFor();
  await page.locator('.message.assistant').hover();
  await page.click('.message.assistant .again');
  await until('another request', () => bodies.length === 2);
  assert.deepEqual(bodies[1].messages, bodies[0].messages);
});

test('a message waits for the files that were chosen before it', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, () => 'Yes.');
  await page.evaluate(() => {
    const read = Blob.prototype.arrayBuffer;
    const gate = new Promise((pass) => { window.openGate = pass; });
    Blob.prototype.arrayBuffer = async function slowly() {
      await gate;
      return read.call(this);
    };
  });
  await page.setInputFiles('#file', { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('note') });
  await ask(page, 'Read it');
  assert.equal(await page.inputValue('#ask'), 'Read it', 'it is not sent yet');
  await page.evaluate(() => window.openGate());
  await until('the answer', () => isDone(page));
  assert.match(bodies[0].messages[0].content, /^File notes\.txt:[\s\S]*Read it$/);
});

test('answers are shown as text, thoughts folded, calls with a place for results', async (t) => {
  const page = await open(t);
  const evil = '<img src=x onerror=alert(1)> [a](javascript:alert(1)) **bold** `code`\n\n<script>alert(1)</script>\n\n![x](https://example.org/spy.png)'
    + '\n\n$\\href{javascript:alert(1)}{x}$ $\\includegraphics{https://example.org/y.png}$ $\\style{color:red}{z}$';
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
  assert.equal(await shown.locator('img, script, [onerror]').count(), 0);
  await until('the formulas', async () => (await shown.locator('.formula.invalid').count()) === 3);
  assert.deepEqual(await shown.locator('a').evaluateAll((all) => all.map((one) => one.href)), ['https://example.org/spy.png'], 'a picture is a link');
  assert.equal(await shown.locator('strong').textContent(), 'bold');
  const thoughts = shown.locator('.thoughts');
  assert.equal(await thoughts.getAttribute('open'), null);
  assert.equal(await thoughts.locator('.prose').textContent(), 'Let me <b>think</b>.');
  assert.match(await shown.locator('.call').textContent(), /weather.*"city": "Oslo"/s);
  await page.unroute('**/v1/chat/completions');
  const bodies = await answering(page, () => refusal(400, 'no more'));
  page.problems.length = 0;
  await page.fill('.result textarea', '{"degrees": 3}');
  await page.click('.result button');
  await page.locator('.message.problem').waitFor();
  assert.match(await page.textContent('.message.problem'), /did not accept.*no more/);
  assert.deepEqual(bodies[0].messages.at(-1), { role: 'tool', tool_call_id: 'c1', content: '{"degrees": 3}' });
  assert.equal(bodies[0].messages.at(-2).tool_calls[0].function.name, 'weather');
  assert.equal(await page.locator('.result').count(), 0, 'the result is given');
  forgive(page, 400);
});

test('Markdown becomes elements: headings, tables, tasks, code with colours, formulas', async (t) => {
  const page = await open(t, { permissions: ['clipboard-read', 'clipboard-write'] });
  const text = ['# Title', '', '| a | b |', '|:--|--:|', '| 1 | **2** |', '', '- [x] done', '- [ ] open', '', '> quote', '',
    '```python', 'def f(x):', '    return "a"  # why', '```', '', 'So $e^{i\\pi}$ and', '', '$$', '\\frac{1}{2}', '$$', '', '[site](https://example.org)', '', '\\(\\frac{\\)'].join('\n');
  await answering(page, () => text);
  await ask(page, 'Markdown, please');
  await until('the answer', () => isDone(page));
  const shown = answer(page);
  assert.equal(await shown.locator('h3').textContent(), 'Title');
  assert.equal(await shown.locator('td.to-right strong').textContent(), '2');
  assert.deepEqual(await shown.locator('.task input').evaluateAll((all) => all.map((box) => [box.checked, box.disabled])), [[true, true], [false, true]]);
  assert.equal(await shown.locator('blockquote').textContent(), 'quote');
  await shown.locator('.code .hl-keyword').first().waitFor();
  assert.equal(await shown.locator('.code .hl-string').textContent(), '"a"');
  assert.equal(await shown.locator('.code-head span').textContent(), 'python');
  await shown.locator('.formula math').nth(1).waitFor();
  assert.equal(await shown.locator('.formula.display mfrac').count(), 1);
  assert.equal(await shown.locator('.formula.invalid code').textContent(), '\\frac{', 'an invalid formula is shown as it was written');
  const link = shown.locator('a');
  assert.deepEqual([await link.getAttribute('rel'), await link.getAttribute('target')], ['noopener noreferrer', '_blank']);
  await shown.locator('.code .copy').click();
  await shown.locator('[aria-label="Copied"]').waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'def f(x):\n    return "a"  # why');
  await shown.locator(':scope > .tools .copy').click();
  await until('the message', async () => (await page.evaluate(() => navigator.clipboard.readText())) === text);
});

test('a text from the right begins there, block by block, and a wide table scrolls', async (t) => {
  const page = await open(t, PHONE);
  const [head, cells] = ['C', 'Interesting'].map((name) => Array.from({ length: 9 }, (_, i) => `${name}${i}`).join(' | '));
  await answering(page, () => `שלום עולם\n\nHello\n\n- مرحبا\n\n\`\`\`js\nf()\n\`\`\`\n\n| ${head} |\n|${'---|'.repeat(9)}\n| ${cells} |\n`);
  await converse(page, 'مرحبا');
  const direction = (selector) => page.locator(selector).first().evaluate((element) => getComputedStyle(element).direction);
  assert.equal(await direction('.message.user .plain'), 'rtl');
  assert.equal(await direction('.assistant .prose > p'), 'rtl');
  assert.equal(await direction('.assistant .prose > p:nth-of-type(2)'), 'ltr');
  assert.equal(await direction('.assistant .prose > ul'), 'rtl');
  assert.equal(await direction('.assistant .prose > .code'), 'ltr');
  await page.fill('#ask', 'שלום');
  assert.equal(await direction('#ask'), 'rtl');
  const [height, isWide] = await page.locator('.assistant .prose > .scroll').evaluate((box) =>
    [box.querySelector('td').clientHeight, box.scrollWidth > box.clientWidth]);
  assert.ok(isWide && height < 60, `a cell is ${height} high`);
});

test('a model that another one replaced is no longer offered', async (t) => {
  const page = await open(t);
  await until('the models', async () => (await page.locator('#model option').count()) > 0);
  await page.route('**/v1/models', async (route) => {
    const response = await route.fetch();
    const models = await response.json();
    models.data.forEach((card) => { card.id = 'another'; });
    await route.fulfill({ response, json: models });
  });
  const bodies = await answering(page, ({ model }) => (model === 'another' ? 'Yes.' : refusal(404, 'there is no such model')));
  await ask(page, 'Hello');
  await page.locator('.message.problem').waitFor();
  await until('the new list', async () => (await page.locator('#model option').allTextContents()).join() === 'another');
  await page.click('.problem .again');
  await until('the answer', async () => isDone(page) && (await textOf(page)) === 'Yes.');
  assert.equal(bodies[1].model, 'another');
  forgive(page, 404);
});

test('finished blocks are not drawn again, and a long answer stays quick', async (t) => {
  const page = await open(t);
  await until('the library', () => page.evaluate(async () => Boolean(await import('./page/prose.js'))));
  const { kept, median, elements } = await page.evaluate(async () => {
    const { Prose } = await import('./page/prose.js');
    const prose = new Prose();
    const list = document.querySelector('#messages');
    list.replaceChildren(prose.element);
    const unit = 'Some **bold** text with `code` and a [link](https://example.org), and more words that fill it.\n\n'
      + '- one\n- two\n\n```js\nconst a = 1; // c\n```\n\n';
    const text = unit.repeat(Math.ceil(120_000 / unit.length)).slice(0, 120_000);
    const costs = [];
    let first = null;
    let isKept = true;
    for (let at = 400; at <= text.length; at += 400) {
      const began = performance.now();
      prose.show(text.slice(0, at), at === text.length);
      list.scrollTop = list.scrollHeight;
      costs.push(performance.now() - began);
      first ??= prose.element.firstElementChild;
      isKept &&= prose.element.firstElementChild === first;
      if (at % 4000 === 0) await new Promise(requestAnimationFrame);
    }
    costs.sort((a, b) => a - b);
    return { kept: isKept, median: costs[costs.length >> 1], elements: prose.element.childElementCount };
  });
  assert.ok(kept, 'the first block stays the same element');
  assert.ok(elements > 1000, `${elements} blocks`);
  // A frame at 60 a second. The machine of the test may be busy, so the median counts.
  assert.ok(median < 16, `${median} ms for a piece`);
});

test('a text that grows by each character looks like the whole text', async (t) => {
  const page = await open(t);
  const { grown, whole } = await page.evaluate(async () => {
    const { Prose } = await import('./page/prose.js');
    const text = ['# Title', '', 'Some **bold** words.', '', '```python', 'def f():', '    return 1', '```', '',
      '```unheard-of', 'x', '```', '', '- one', '- two', '', '| a | b |', '|---|---|', '| 1 | 2 |', '', '$$', 'x^2', '$$', '', 'End.'].join('\n');
    const [a, b] = [new Prose(), new Prose()];
    for (let end = 1; end <= text.length; end += 1) a.show(text.slice(0, end), end === text.length);
    b.show(text, true);
    document.querySelector('#messages').replaceChildren(a.element, b.element);
    const isDrawn = ({ element }) => element.querySelector('math') && element.querySelector('.hl-keyword');
    while (!isDrawn(a) || !isDrawn(b)) await new Promise((wake) => { setTimeout(wake, 20); });
    return { grown: a.element.outerHTML, whole: b.element.outerHTML };
  });
  assert.equal(grown, whole);
});

test('a question without an answer stays, can be tried again, and the next one takes its place', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, (body, turn) => (turn === 2 ? 'Hi.' : refusal(503, 'recovering')));
  await ask(page, 'Hello');
  await page.locator('.message.problem').waitFor();
  assert.match(await page.textContent('.message.problem'), /The server is not ready.*recovering/);
  assert.equal(await page.locator('.message.user').count(), 1);
  await page.click('.problem .again');
  await until('the answer', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 1);
  assert.equal(await textOf(page), 'Hi.');
  assert.equal(await page.locator('.message.problem').count(), 0);
  assert.deepEqual(bodies[1].messages, bodies[0].messages);

  await ask(page, 'And now?');
  await page.locator('.message.problem').waitFor();
  await ask(page, 'Or now?');
  await until('another request', () => bodies.length === 4);
  assert.deepEqual(bodies[3].messages.map(({ content }) => content), ['Hello', 'Hi.', 'Or now?']);
  await page.locator('.message.problem').waitFor();
  forgive(page, 503);

  await page.unroute('**/v1/chat/completions');
  // An answer that never begins.
  await page.route('**/v1/chat/completions', () => {});
  await page.click('.problem .again');
  await page.click('#stop');
  await page.locator('.unanswered').waitFor();
  await page.reload();
  await page.locator('.unanswered .again').waitFor();
  assert.equal(await page.locator('.message.user').count(), 2);

  await page.unroute('**/v1/chat/completions');
  await page.route('**/v1/chat/completions', (route) => route.abort());
  await page.click('.unanswered .again');
  await page.locator('.message.problem').waitFor();
  assert.match(await page.textContent('.message.problem'), /The server cannot be reached/);
  assert.ok(page.problems.every((problem) => /ERR_FAILED/.test(problem)), page.problems);
  page.problems.length = 0;
});

test('the probability of a token is shown as colour, with its alternatives', async (t) => {
  const page = await open(t);
  await endless(page, 12);
  await page.check('#logprobs');
  await ask(page, 'Hello');
  await until('the answer', () => isDone(page));
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
  assert.deepEqual(await page.locator('.message.problem').allTextContents(), []);
  const answered = await page.locator('.message.assistant .tokens').textContent();
  assert.match(answered, /^I am .*[.]∎$/);
});

test('settings go with the question, are kept, and can be reset', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, () => 'Yes.');
  await page.selectOption('#thinking', 'off');
  await page.fill('#system', 'Be brief.');
  await page.fill('#temperature', '0.5');
  await page.fill('#max_tokens', '9');
  await page.click('#advanced > summary');
  const numbers = { top_p: 0.9, top_k: 5, min_p: 0.1, seed: 3, presence_penalty: 1, frequency_penalty: -1, repetition_penalty: 1.1 };
  for (const [name, value] of Object.entries(numbers)) await page.fill(`#${name}`, String(value));
  await page.fill('#stop-at', 'END\n###');
  await page.fill('#schema', '{"type": "object"}');
  await page.fill('#tools', '[{"type": "function", "function": {"name": "f"}}]');
  await page.fill('#more', '{"ignore_eos": true}');
  await converse(page, 'Well?');
  await page.reload();
  await page.locator('.message.assistant').waitFor();
  await converse(page, 'And?');
  for (const body of bodies) {
    const { messages, stream, stream_options: options, model, ...fields } = body;
    assert.deepEqual(fields, {
      ...numbers,
      temperature: 0.5,
      max_tokens: 9,
      stop: ['END', '###'],
      chat_template_kwargs: { enable_thinking: false },
      response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: { type: 'object' } } },
      tools: [{ type: 'function', function: { name: 'f' } }],
      ignore_eos: true,
    });
    assert.deepEqual([stream, options.include_usage, model], [true, true, 'demo']);
    assert.deepEqual(messages[0], { role: 'system', content: 'Be brief.' });
  }
  await page.click('#reset');
  await page.reload();
  await page.locator('.message.assistant').nth(1).waitFor();
  await converse(page, 'Still?');
  assert.deepEqual(Object.keys(bodies[2]).sort(), ['messages', 'model', 'stream', 'stream_options']);
});

test('a JSON schema binds the answer of the model', async (t) => {
  const page = await open(t);
  await page.click('#advanced > summary');
  await page.fill('#schema', '{"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": false}');
  const text = await converse(page, 'Give me a number');
  assert.ok([1, 2, 3].includes(JSON.parse(text).n), text);
});

test('invalid input is reported before it is sent', async (t) => {
  const page = await open(t);
  await page.click('#advanced > summary');
  for (const [name, text] of [['tools', '[{"type": '], ['schema', '[]'], ['more', 'x']]) {
    await page.fill(`#${name}`, text);
    await page.evaluate(() => { document.querySelector('#advanced').open = false; });
    await ask(page, 'Hello');
    await page.locator(`#${name}-problem`).waitFor();
    assert.match(await page.textContent(`#${name}-problem`), /^(Tools|JSON schema|More fields): /);
    assert.equal(await page.evaluate(() => document.activeElement.id), name);
    assert.equal(await page.locator('.message').count(), 0);
    await page.fill(`#${name}`, '');
  }
  await page.fill('#temperature', '9');
  await ask(page, 'Hello');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'temperature');
  assert.equal(await page.locator('.message').count(), 0);
});

test('on a touch screen Enter begins a line, and the button sends', async (t) => {
  const page = await open(t);
  await page.addInitScript(() => {
    const real = window.matchMedia.bind(window);
    const touched = Object.assign(new EventTarget(), { matches: true });
    window.matchMedia = (query) => (query.includes('pointer: coarse') ? touched : real(query));
  });
  await page.reload();
  const bodies = await answering(page, () => 'Yes.');
  await page.fill('#ask', 'one');
  await page.press('#ask', 'Enter');
  await page.keyboard.type('two');
  assert.equal(await page.inputValue('#ask'), 'one\ntwo');
  await page.click('#send');
  await until('the answer', () => isDone(page));
  await page.fill('#ask', 'three');
  await page.press('#ask', 'Control+Enter');
  await until('the second request', () => bodies.length === 2);
  assert.deepEqual(bodies[1].messages.map(({ content }) => content), ['one\ntwo', 'Yes.', 'three']);
});

test('the first questions are offered as buttons', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, () => '42');
  await page.dblclick('.empty button >> nth=2');
  await until('the answer', () => isDone(page));
  assert.equal(bodies.length, 1, 'a double click asks once');
  assert.equal(bodies[0].messages[0].content, 'What is 17 + 25?');
});

checkProblems();
