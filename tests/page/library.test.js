// Conversations that stay, in a headless Chromium: the list, branches, what each button does.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { until } from './browser.js';
import {
  PHONE, answer, answering, ask, browser, checkProblems, converse, endless, isDone, open, opened, server, slow, textOf,
} from './setup.js';

const names = (page) => page.locator('#conversations .title').allTextContents();
const row = (page, name) => page.locator('#conversations li', { has: page.locator('.title', { hasText: name }) });
/** Presses a button of a message, which may be visible on hover alone. */
const press = async (message, button) => {
  await message.hover();
  await message.locator(`:scope > .tools .${button}`).click();
};
const user = (page) => page.locator('.message.user').last();
const branches = (message) => message.locator('.branches .num').textContent();
const texts = (page) => page.locator('.message .plain, .message > .prose').allTextContents();
const confirm = (page) => page.click('#confirm-yes');

test('conversations stay, and each can be found, opened, renamed and deleted', async (t) => {
  const page = await open(t);
  await answering(page, ({ messages }) => `About ${messages.at(-1).content}`);
  await until('the list', async () => (await page.textContent('#conversations')) === 'No conversations yet.');
  assert.ok(await page.isDisabled('#export-all'));
  await converse(page, 'red houses');
  await page.click('#new');
  assert.equal(await page.locator('.message').count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'ask');
  await converse(page, 'blue boats');
  await page.reload();
  await until('the last one', async () => (await texts(page)).join() === 'blue boats,About blue boats');
  assert.deepEqual(await names(page), ['blue boats', 'red houses']);
  assert.equal(await page.textContent('#conversations .age'), 'Today');
  assert.equal(await page.textContent('#library-note'), 'Kept in this browser alone.');

  await row(page, 'red houses').locator('.open').click();
  await until('the first one', async () => (await textOf(page)) === 'About red houses');
  assert.equal(await page.textContent('#talk-title'), 'red houses');
  assert.equal(await row(page, 'red houses').locator('.open').getAttribute('aria-current'), 'true');

  await page.fill('#find', 'ABOUT boats');
  await until('what is found', async () => (await names(page)).join() === 'blue boats');
  assert.match(await page.textContent('#conversations .snippet'), /About blue boats/);
  await page.fill('#find', 'green');
  await until('nothing', async () => (await page.textContent('#conversations')) === 'Nothing is found.');
  await page.fill('#find', '');
  await until('all', async () => (await names(page)).length === 2);

  await row(page, 'blue boats').hover();
  await page.click('[aria-label="Rename blue boats"]');
  await page.keyboard.type('Ships');
  await page.keyboard.press('Enter');
  await until('the name', async () => (await names(page)).includes('Ships'));
  await page.click('[aria-label="Rename red houses"]');
  await page.keyboard.type('Never');
  await page.keyboard.press('Escape');
  await until('the old name', async () => (await names(page)).includes('red houses'));
  await page.click('[aria-label="Rename red houses"]');
  await page.keyboard.type('Homes');
  await page.keyboard.press('Enter');
  await until('the title', async () => (await page.textContent('#talk-title')) === 'Homes');

  await page.click('[aria-label="Delete Homes"]');
  assert.match(await page.textContent('#confirm-text'), /“Homes” is deleted/);
  await page.click('#confirm button >> text=Cancel');
  assert.equal((await names(page)).length, 2);
  await page.click('[aria-label="Delete Homes"]');
  await confirm(page);
  await until('one less', async () => (await names(page)).join() === 'Ships');
  assert.equal(await page.locator('.message').count(), 0);
  await page.reload();
  await until('one less', async () => (await names(page)).join() === 'Ships');
});

test('a conversation is exported and imported, also into another browser', async (t) => {
  const page = await open(t);
  await answering(page, () => 'An answer');
  await converse(page, 'first question');
  await press(answer(page), 'again');
  await until('a branch', async () => (await answer(page).locator('.branches').count()) === 1 && isDone(page));
  await page.click('#new');
  await page.setInputFiles('#file', { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('note') });
  await page.locator('#attachments li').waitFor();
  await converse(page, 'second question');
  const download = async (button) => {
    const [file] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
    return { name: file.suggestedFilename(), text: await readFile(await file.path(), 'utf8') };
  };
  const one = await download('[aria-label="Export second question"]');
  assert.equal(one.name, 'playhouse-second-question.json');
  const all = await download('#export-all');
  assert.equal(JSON.parse(all.text).conversations.length, 2);

  const other = await open(t);
  const give = async (text) => {
    const [chooser] = await Promise.all([other.waitForEvent('filechooser'), other.click('#import')]);
    await chooser.setFiles({ name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(text) });
  };
  await give(all.text);
  await until('both', async () => (await names(other)).length === 2);
  await row(other, 'first question').locator('.open').click();
  await until('its branches', async () => (await branches(answer(other))) === '2 / 2');
  await row(other, 'second question').locator('.open').click();
  await other.locator('.message.user .file').waitFor();
  await give(one.text);
  await until('a copy', async () => (await names(other)).filter((name) => name === 'second question').length === 2);
  await give('{"format": "something"}');
  await other.locator('.message.problem').waitFor();
  assert.match(await other.textContent('.message.problem'), /Nothing was imported: .*format/);
  const files = [one.text, '{}'].map((text, i) => ({ name: `${i}.json`, mimeType: 'application/json', buffer: Buffer.from(text) }));
  await other.setInputFiles('#import-file', files);
  await until('the second problem', async () => (await other.locator('.message.problem').count()) === 2);
  assert.equal((await names(other)).length, 3, 'a file that is wrong keeps the others out, too');
});

test('messages are edited, answered again, continued and deleted, and branches stay', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, (body, turn) => `Answer ${turn}.`);
  await converse(page, 'Question');
  const idle = () => until('the answer', () => isDone(page));
  await press(answer(page), 'again');
  await until('the second', async () => (await textOf(page)) === 'Answer 2.');
  await idle();
  assert.equal(await branches(answer(page)), '2 / 2');
  await answer(page).locator('.before').click();
  await until('the first', async () => (await textOf(page)) === 'Answer 1.');
  await answer(page).locator('.after').click();
  await until('the second', async () => (await textOf(page)) === 'Answer 2.');

  await press(answer(page), 'goOn');
  await until('the rest', async () => (await textOf(page)) === 'Answer 2.Answer 3.');
  await idle();
  assert.deepEqual([bodies[2].continue_final_message, bodies[2].add_generation_prompt], [true, false]);
  assert.equal(bodies[2].messages.at(-1).content, 'Answer 2.');

  await press(user(page), 'edit');
  await page.fill('.editor textarea', 'Never');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.editor').count(), 0);
  await press(user(page), 'edit');
  await page.fill('.editor textarea', 'Another question');
  await page.keyboard.press('Control+Enter');
  await until('its answer', async () => (await texts(page)).join() === 'Another question,Answer 4.');
  await idle();
  assert.deepEqual(bodies[3].messages.map(({ content }) => content), ['Another question']);
  assert.equal(await branches(user(page)), '2 / 2');

  await press(answer(page), 'edit');
  await page.fill('.editor textarea', 'My **own** answer');
  await page.click('.editor .primary');
  await until('the edit', async () => (await textOf(page)) === 'My own answer');
  assert.equal(await answer(page).locator('.foot').textContent(), 'edited by you');
  await converse(page, 'Go on');
  assert.deepEqual(bodies[4].messages.map(({ content }) => content), ['Another question', 'My **own** answer', 'Go on']);

  await page.reload();
  await until('all of it', async () => (await page.locator('.message').count()) === 4);
  await press(page.locator('.message.assistant').first(), 'remove');
  assert.match(await page.textContent('#confirm-text'), /The 2 messages after it are deleted too/);
  await confirm(page);
  await until('the branch before', async () => (await texts(page)).join() === 'Another question,Answer 4.');
  await press(user(page), 'remove');
  await confirm(page);
  await until('the first branch', async () => (await texts(page)).join() === 'Question,Answer 2.Answer 3.');
  await press(user(page), 'remove');
  await confirm(page);
  await until('nothing', async () => page.locator('.empty').isVisible());
});

test('the model continues its own words', async (t) => {
  const page = await open(t);
  await endless(page, 8);
  await page.fill('#temperature', '0');
  const begun = await converse(page, 'Tell me a short story');
  await press(answer(page), 'goOn');
  await until('more', async () => (await textOf(page)).length > begun.length && isDone(page));
  const whole = await textOf(page);
  assert.ok(whole.startsWith(begun), whole);
  await page.click('#new');
  await page.fill('#max_tokens', '16');
  assert.equal(await converse(page, 'Tell me a short story'), whole, 'as if it had not been interrupted');
});

test('an answer goes on while another conversation is open', async (t) => {
  const page = await open(t);
  await endless(page, 3500);
  await slow(t, 5);
  await ask(page, 'A long story');
  await answer(page).waitFor();
  await until('the beginning', async () => (await textOf(page)).length > 40);
  await page.click('#new');
  assert.ok(await page.isVisible('#send'), 'another question can be asked');
  await row(page, 'A long story').locator('.open').click();
  assert.ok(await page.isVisible('#stop'), 'it is in progress still');
  const before = (await textOf(page)).length;
  await until('more', async () => (await textOf(page)).length > before);
  await page.click('#new');
  await row(page, 'A long story').hover();
  await page.click('[aria-label="Delete A long story"]');
  await confirm(page);
  await until('it is gone', async () => (await names(page)).length === 0);
  await until('the server to be idle', async () => (await (await fetch(`${server.url}/load`)).json()).server_load === 0);
});

test('a press on the list counts although the list changes meanwhile', async (t) => {
  const page = await open(t);
  await answering(page, () => 'Yes.');
  await converse(page, 'one');
  await page.click('#new');
  await page.fill('#ask', 'two');
  await row(page, 'one').locator('.title').hover();
  await page.mouse.down();
  await page.evaluate(() => document.querySelector('#composer').requestSubmit());
  await until('the answer', () => isDone(page));
  assert.deepEqual(await names(page), ['one'], 'the list waits for the end of the press');
  await page.mouse.up();
  await until('the conversation', async () => (await page.textContent('#talk-title')) === 'one');
  await until('the list', async () => (await names(page)).join() === 'two,one');
});

test('an answer that was cut by a reload is there, as far as it came', async (t) => {
  const page = await open(t);
  await endless(page, 3500);
  await slow(t, 5);
  await ask(page, 'A long story');
  await answer(page).waitFor();
  await until('some of it', async () => (await textOf(page)).length > 200);
  await page.waitForTimeout(2500);
  await page.reload();
  await answer(page).waitFor();
  assert.ok((await textOf(page)).length > 100);
  assert.match(await answer(page).locator('.foot').textContent(), /^broken off/);
});

test('each conversation has its system prompt, and a new one begins with the last', async (t) => {
  const page = await open(t);
  const bodies = await answering(page, () => 'Yes.');
  await page.fill('#system', 'Be brief.');
  await converse(page, 'one');
  await page.click('#new');
  await page.fill('#system', 'Be long.');
  await converse(page, 'two');
  await row(page, 'one').locator('.open').click();
  await until('its prompt', async () => (await page.inputValue('#system')) === 'Be brief.');
  await converse(page, 'three');
  assert.deepEqual(bodies.map(({ messages }) => messages[0].content), ['Be brief.', 'Be long.', 'Be brief.']);
  await page.click('#new');
  assert.equal(await page.inputValue('#system'), 'Be long.');
});

test('the focus stays near a button that a key pressed and that is gone', async (t) => {
  const page = await open(t);
  await answering(page, (body, turn) => `Answer ${turn}.`);
  await converse(page, 'Question');
  await answer(page).locator(':scope > .tools .again').focus();
  await page.keyboard.press('Enter');
  await until('a branch', async () => (await answer(page).locator('.branches').count()) === 1 && isDone(page));
  assert.equal(await page.evaluate(() => document.activeElement.id), 'ask');
  await answer(page).locator('.branches .before').focus();
  await page.keyboard.press('Enter');
  await until('the first answer', async () => (await textOf(page)) === 'Answer 1.');
  assert.ok(await page.evaluate(() => document.activeElement.matches('.branches .after')));
});

test('a second tab sees the conversations of the first', async (t) => {
  const page = await open(t);
  const second = await page.context().newPage();
  await second.goto(`${server.url}/`);
  await second.locator('.empty').waitFor();
  await answering(page, () => 'Yes.');
  await converse(page, 'from the first tab');
  await until('it', async () => (await names(second)).join() === 'from the first tab');
  await row(second, 'from the first tab').locator('.open').click();
  await until('its answer', async () => (await texts(second)).length === 2);
  await converse(page, 'more');
  await until('the answer to more', async () => (await texts(second)).join() === 'from the first tab,Yes.,more,Yes.');
  await press(answer(page), 'edit');
  await page.fill('.editor textarea', 'No.');
  await page.click('.editor .primary');
  await until('the edited answer', async () => (await texts(second)).join() === 'from the first tab,Yes.,more,No.');
  await row(page, 'from the first tab').hover();
  await page.click('[aria-label="Delete from the first tab"]');
  await confirm(page);
  await until('nothing', async () => (await second.locator('.message').count()) === 0);

  await converse(page, 'once more');
  await row(second, 'once more').locator('.open').click();
  await until('its answer', async () => (await texts(second)).length === 2);
  await page.click('#delete-all');
  await page.click('#confirm button >> text=Cancel');
  assert.deepEqual(await names(page), ['once more']);
  await page.click('#delete-all');
  await confirm(page);
  for (const one of [page, second]) {
    await until('nothing', async () => (await one.textContent('#conversations')) === 'No conversations yet.');
    await until('no messages', async () => (await one.locator('.message').count()) === 0);
    await until('nothing to delete', () => one.isDisabled('#delete-all'));
  }
});

test('a browser that keeps nothing says so, and talks all the same', async () => {
  const page = await browser.open(server.url);
  opened.push(page);
  try {
    await page.addInitScript(() => {
      const refuse = () => { throw new DOMException('denied', 'SecurityError'); };
      Object.defineProperty(window, 'indexedDB', { value: { open: refuse } });
      for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, { get: refuse });
    });
    await page.reload();
    await answering(page, () => 'Yes.');
    assert.equal(await converse(page, 'Hello'), 'Yes.');
    assert.deepEqual(await names(page), ['Hello']);
    assert.match(await page.textContent('#library-note'), /keeps nothing/);
  } finally {
    await page.context().close();
  }
});

test('a browser whose storage is full says so once, and a draft outlives a reload', async (t) => {
  const page = await open(t);
  await answering(page, () => 'Yes.');
  await page.evaluate(() => {
    IDBObjectStore.prototype.put = () => { throw new DOMException('no room', 'QuotaExceededError'); };
  });
  const losses = page.locator('.message.problem', { hasText: 'could not keep the conversation: no room' });
  await ask(page, 'Hello');
  await until('the answer', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 1);
  assert.equal(await losses.count(), 1);
  await ask(page, 'Again');
  await until('the answer', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 2);
  assert.equal(await losses.count(), 0, 'it is told once');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export-all')]);
  const { conversations: [{ messages }] } = JSON.parse(await readFile(await file.path(), 'utf8'));
  assert.deepEqual(messages.map(({ text }) => text), ['Hello', 'Yes.', 'Again', 'Yes.'], 'the store has none of them');
  await page.fill('#ask', 'Not sent yet');
  await page.reload();
  await until('the draft', async () => (await page.inputValue('#ask')) === 'Not sent yet');
  await page.locator('.empty').waitFor();
});

test('on a phone the list opens above the conversation, and closes', async (t) => {
  const page = await open(t, { ...PHONE, hasTouch: true });
  await answering(page, () => 'Yes.');
  await converse(page, 'Hello');
  assert.equal(await page.isVisible('#library'), false);
  await page.click('#show-library');
  assert.ok(await page.isVisible('#library'));
  assert.equal(await page.getAttribute('#show-library', 'aria-expanded'), 'true');
  await page.keyboard.press('Escape');
  assert.equal(await page.isVisible('#library'), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'show-library');
  await page.click('#show-library');
  await page.mouse.click(350, 400);
  assert.equal(await page.isVisible('#library'), false, 'a tap beside it closes it');
  await page.click('#new-here');
  assert.equal(await page.locator('.message').count(), 0);
  await page.click('#show-library');
  await row(page, 'Hello').locator('.open').click();
  assert.equal(await page.isVisible('#library'), false);
  await until('the conversation', async () => (await textOf(page)) === 'Yes.');
});

test('two keys begin a conversation and look for one', async (t) => {
  const page = await open(t);
  await answering(page, () => 'Yes.');
  await converse(page, 'Hello');
  await page.click('#show-library');
  await page.keyboard.press('Control+k');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'find');
  await page.keyboard.press('Control+Shift+O');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'ask');
  assert.equal(await page.locator('.message').count(), 0);
});

test('the list can be closed on a desktop too', async (t) => {
  const page = await open(t);
  assert.ok(await page.isVisible('#library'));
  await page.click('#show-library');
  assert.equal(await page.isVisible('#library'), false);
  assert.ok(await page.isVisible('#new-here'));
});

test('colours follow the system, or the choice, which stays', async (t) => {
  const page = await open(t, { colorScheme: 'light' });
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const label = () => page.getAttribute('#theme', 'aria-label');
  const light = await paper();
  assert.equal(await label(), 'Colours: as the system');
  await page.click('#theme');
  assert.equal(await label(), 'Colours: light');
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await paper(), light, 'the choice counts');
  await page.click('#theme');
  await until('the dark', async () => (await paper()) !== light);
  const dark = await paper();
  await page.emulateMedia({ colorScheme: 'light' });
  await page.reload();
  await until('the dark', async () => (await paper()) === dark);
  assert.equal(await label(), 'Colours: dark');
  await page.click('#theme');
  await until('the light of the system', async () => (await paper()) === light);
});

test('the licences of others’ code are one click away', async (t) => {
  const page = await open(t);
  const address = await page.locator('.params a').evaluate((link) => link.href);
  const text = await (await fetch(address)).text();
  for (const name of ['Marked', 'Highlight.js', 'Temml', 'BSD 3-Clause', 'MIT']) assert.ok(text.includes(name), name);
});

checkProblems();
