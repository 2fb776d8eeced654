// Conversations without a document: branches, what is kept, requests, files, errors.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explain } from '../../src/server/page/errors.js';
import { fieldsOf } from '../../src/server/page/fields.js';
import { blank, counts, fold, rateOf } from '../../src/server/page/fold.js';
import { contentOf, fileText, messagesOf } from '../../src/server/page/parts.js';
import { Fleeting, search, snippet } from '../../src/server/page/store.js';
import { Talk, fresh } from '../../src/server/page/talk.js';
import { exported, fileName, imported } from '../../src/server/page/transfer.js';
import { Tree, newId, placeOf, titleOf, wanted } from '../../src/server/page/tree.js';

const texts = (tree, id) => tree.path(id).map(({ text }) => text);

/** A tree: a question with two answers, and a question after the first. */
function grown() {
  const tree = new Tree();
  const question = tree.add(null, { role: 'user', text: 'q' });
  const first = tree.add(question.id, { role: 'assistant', text: 'a1' });
  const second = tree.add(question.id, { role: 'assistant', text: 'a2' });
  const later = tree.add(first.id, { role: 'user', text: 'q2' });
  return { tree, question, first, second, later };
}

test('a path leads from the first message to a leaf, and branches stand beside each other', () => {
  const { tree, question, first, second, later } = grown();
  assert.deepEqual(texts(tree, later.id), ['q', 'a1', 'q2']);
  assert.deepEqual(tree.siblings(second.id).map(({ id }) => id), [first.id, second.id]);
  assert.equal(tree.leaf(question.id), second.id, 'the newest branch');
  assert.equal(tree.leaf(first.id), later.id);
  assert.deepEqual(new Tree(tree.all().reverse()).all().map(({ id }) => id), tree.all().map(({ id }) => id), 'ids sort');
});

test('a message goes with all that follow it, and the branch beside it is shown', () => {
  const { tree, question, first, second } = grown();
  assert.equal(tree.remove(second.id), tree.leaf(first.id), 'the branch before');
  assert.equal(tree.remove(first.id), question.id, 'the parent, where no branch is left');
  assert.deepEqual(tree.all().map(({ text }) => text), ['q']);
  assert.equal(tree.remove(question.id), null);
  assert.equal(tree.size, 0);
});

test('ids sort by their making, also within a millisecond and when the clock goes back', () => {
  const ids = [1e12, 1e12, 1e12 - 50, 1e12 + 1].map((now) => newId(now, 0.5));
  assert.deepEqual([...ids].sort(), ids);
  assert.equal(new Set(ids).size, ids.length);
});

test('a path that a broken import made a circle ends', () => {
  const tree = new Tree([{ id: 'a', parent: 'b' }, { id: 'b', parent: 'a' }]);
  assert.equal(tree.path('a').length, 2);
});

test('a question without an answer gets a branch from the next one', () => {
  const { tree, first, later } = grown();
  assert.equal(placeOf(tree, later.id), first.id);
  assert.equal(placeOf(tree, first.id), first.id);
  assert.equal(placeOf(tree, null), null);
});

test('a title is the beginning of the first line', () => {
  assert.equal(titleOf('  Hello   there\nmore'), 'Hello there');
  assert.equal(titleOf(''), 'Conversation');
  const long = titleOf('word '.repeat(40));
  assert.ok(long.length <= 61 && long.endsWith('word…'), long);
  for (const text of ['🏠'.repeat(60), `a${'🏠'.repeat(60)}`]) {
    assert.ok(titleOf(text).isWellFormed(), 'no half of a character');
    for (const at of [41, 42]) assert.ok(snippet(`${text.slice(0, at)} word ${text}`.toWellFormed(), 'word').isWellFormed());
  }
});

test('settings become fields, and empty ones are not sent', () => {
  assert.deepEqual(fieldsOf({ model: 'm', temperature: '0', top_p: '', stop: 'a\n\nb', thinking: 'off' }), {
    fields: { model: 'm', temperature: 0, stop: ['a', 'b'], chat_template_kwargs: { enable_thinking: false } },
  });
  assert.deepEqual(fieldsOf({ thinking: '' }).fields, {});
  const { fields } = fieldsOf({ schema: '{"type": "object"}', tools: '[]', more: '{"min_tokens": 3}', logprobs: true });
  assert.deepEqual(fields.response_format.json_schema, { name: 'answer', strict: true, schema: { type: 'object' } });
  assert.deepEqual([fields.tools, fields.min_tokens, fields.top_logprobs], [undefined, 3, 5]);
  assert.equal(fieldsOf({ tools: '{}' }).wrong, 'tools');
  assert.equal(fieldsOf({ schema: '[1]' }).wrong, 'schema');
  assert.match(fieldsOf({ more: '{' }).problem, /JSON/);
});

test('files of text stand before the question, in fences that they cannot close', async () => {
  assert.equal(fileText({ name: 'a.md', text: 'x' }), 'File a.md:\n```md\nx\n```');
  assert.match(fileText({ name: 'b', text: '````\n' }), /^File b:\n`````\n````\n`````$/);
  const file = { kind: 'text', name: 'a', text: 'x' };
  assert.equal(await contentOf({ text: 'Why?', attachments: [file] }), 'File a:\n```\nx\n```\n\nWhy?');
  const sound = { kind: 'sound', name: 'a.mp3', blob: new Blob(['abc'], { type: 'audio/mpeg' }) };
  const image = { kind: 'image', name: 'a.png', blob: new Blob(['abc'], { type: 'image/png' }) };
  assert.deepEqual(await contentOf({ text: '', attachments: [sound, image] }), [
    { type: 'input_audio', input_audio: { data: 'YWJj', format: 'mp3' } },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,YWJj' } },
  ]);
});

test('the model reads the system prompt, calls and their results', async () => {
  const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };
  const path = [{ role: 'user', text: 'q' }, { role: 'assistant', text: '', calls: [call] }, { role: 'tool', callId: 'c', text: '3' }];
  assert.deepEqual(await messagesOf(path, ' Be brief. '), [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'q' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c', content: '3' },
  ]);
  assert.equal((await messagesOf(path, ' '))[0].role, 'user');
});

test('chunks become an answer', () => {
  const [node, told] = [blank('m'), counts(100)];
  fold(node, told, { model: 'real', choices: [{ delta: { role: 'assistant', content: '' } }] }, 110);
  fold(node, told, { choices: [{ delta: { reasoning: 'Hm' } }], usage: { completion_tokens: 1 } }, 120);
  fold(node, told, { choices: [{ delta: { content: 'Yes' } }], usage: { completion_tokens: 3 } }, 220);
  fold(node, told, { choices: [{ delta: { tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '{' } }] } }] }, 230);
  fold(node, told, { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '}' } }] }, finish_reason: 'tool_calls' }] }, 320);
  assert.deepEqual([node.text, node.reasoning, node.model, node.calls[0].function.arguments], ['Yes', 'Hm', 'real', '{}']);
  assert.deepEqual([told.firstMs, told.ms, told.tokens, told.reason], [20, 220, 3, 'tool_calls']);
  assert.equal(rateOf(told), 10);
  assert.equal(rateOf({ tokens: 9, firstMs: 1, ms: 2 }), 0, 'too short to know');
  assert.throws(() => fold(node, told, { error: { message: 'no', code: 503 } }, 1), { message: 'no', status: 503 });
});

test('calls wait for their results', () => {
  const calls = [{ id: 'a' }, { id: 'b' }];
  const asked = { role: 'assistant', calls, told: { reason: 'tool_calls' } };
  assert.deepEqual(wanted([asked]), calls);
  assert.deepEqual(wanted([asked, { role: 'tool', callId: 'a' }]), [{ id: 'b' }]);
  assert.deepEqual(wanted([{ role: 'user' }]), []);
});

/** A server that answers each request with the next of `answers`: texts of chunks, or an error. */
function serverOf(...answers) {
  const bodies = [];
  const request = async (path, { body }) => {
    bodies.push(body);
    const answer = answers[bodies.length - 1];
    if (answer instanceof Error) throw answer;
    const events = answer.map((content) => ({ choices: [{ delta: { content } }] }));
    const lines = [...events.map((event) => JSON.stringify(event)), ...(answer.isCut ? [] : ['[DONE]'])];
    return new Response(lines.map((line) => `data: ${line}\n\n`).join(''));
  };
  return { bodies, request };
}

test('a conversation asks, answers again, goes on, edits and forgets, and the store has it', async () => {
  const { bodies, request } = serverOf(['Hel', 'lo'], ['Hi'], [' there'], ['Bye']);
  const store = new Fleeting();
  const talk = new Talk(fresh('Be kind.'), [], store, request);
  await talk.say('Hello?', [], { model: 'm' });
  assert.deepEqual(talk.path.map(({ text }) => text), ['Hello?', 'Hello']);
  assert.equal(talk.conversation.title, 'Hello?');
  const [question, first] = talk.path;
  await talk.regenerate(first.id, {});
  assert.equal(talk.tree.siblings(first.id).length, 2);
  await talk.goOn(talk.path[1].id, {});
  assert.equal(talk.path[1].text, 'Hi there');
  assert.equal(bodies[2].continue_final_message, true);
  assert.equal(bodies[2].messages.at(-1).content, 'Hi');
  await talk.edit(question.id, 'Goodbye?', {});
  assert.deepEqual(bodies[3].messages.map(({ content }) => content), ['Be kind.', 'Goodbye?']);
  await talk.edit(talk.path[1].id, 'Farewell');
  assert.deepEqual([talk.path[1].text, talk.path[1].told.reason], ['Farewell', 'edited']);
  await talk.choose(question.id);
  assert.equal(talk.path[1].text, 'Hi there');
  const kept = new Tree(await store.messages(talk.conversation.id));
  assert.deepEqual(texts(kept, (await store.conversations())[0].current), ['Hello?', 'Hi there']);
  await talk.remove(question.id);
  assert.deepEqual(talk.path.map(({ text }) => text), ['Goodbye?', 'Farewell']);
  assert.equal((await store.messages(talk.conversation.id)).length, talk.tree.size);
});

test('what fails is explained, changes nothing, and can be tried again', async () => {
  const refused = Object.assign(new Error('queue full'), { status: 429 });
  const cut = Object.assign(['Half'], { isCut: true });
  const { bodies, request } = serverOf(refused, ['Yes'], refused, cut);
  const talk = new Talk(fresh(), [], new Fleeting(), request);
  await talk.say('Well?', [], {});
  assert.equal(talk.problem.title, 'The server has too much to do');
  assert.deepEqual(talk.path.map(({ text }) => text), ['Well?']);
  await talk.problem.retry({});
  assert.equal(talk.problem, null);
  assert.deepEqual(talk.path.map(({ text }) => text), ['Well?', 'Yes']);
  await talk.regenerate(talk.path[1].id, {});
  assert.equal(talk.problem.detail, 'queue full');
  assert.deepEqual(talk.path.map(({ text }) => text), ['Well?', 'Yes'], 'the answer before is shown');
  await talk.problem.retry({});
  assert.equal(talk.problem.title, 'The answer broke off');
  assert.deepEqual(talk.path.map(({ text }) => text), ['Well?', 'Half'], 'the text so far is kept');
  assert.equal(bodies.length, 4);
});

test('a store that is full stops no conversation', async () => {
  const { request } = serverOf(['Yes'], ['No']);
  const store = new Fleeting();
  store.save = async () => { throw new DOMException('full', 'QuotaExceededError'); };
  const talk = new Talk(fresh(), [], store, request);
  let losses = 0;
  talk.view = { onPath() {}, onNode() {}, onSave() {}, onLoss() { losses += 1; } };
  await talk.say('Well?', [], {});
  await talk.say('And?', [], {});
  assert.deepEqual(talk.path.map(({ text }) => text), ['Well?', 'Yes', 'And?', 'No']);
  assert.equal(losses, 4);
});

test('each status has words of its own', () => {
  const told = [400, 401, 403, 404, 413, 429, 500, 503].map((status) => explain({ status, message: '' }).title);
  assert.equal(new Set(told).size, told.length, told);
  assert.match(explain({ status: 400, message: "This model's maximum context length is 9" }).title, /too long/);
  assert.match(explain({ name: 'NetworkError', message: '' }).title, /cannot be reached/);
  assert.equal(explain(new Error('odd')).detail, 'odd');
});

test('a file with conversations brings all of them back, with their files', async () => {
  const image = { kind: 'image', name: 'a.png', blob: new Blob([new Uint8Array([0, 255, 128])], { type: 'image/png' }) };
  const nodes = [{ id: 'n', conversation: 'c', parent: null, role: 'user', text: 'q', attachments: [image, { kind: 'text', name: 't', text: 'x' }] }];
  const file = await exported([[{ id: 'c', title: 'T', current: 'n', created: 1, updated: 2, system: 's' }, nodes]]);
  const [[conversation, [node]]] = imported(file);
  assert.deepEqual(conversation, { id: 'c', title: 'T', current: 'n', created: 1, updated: 2, system: 's' });
  const [{ blob }, text] = node.attachments;
  assert.deepEqual([...new Uint8Array(await blob.arrayBuffer())], [0, 255, 128]);
  assert.deepEqual([blob.type, text.text], ['image/png', 'x']);
  const again = JSON.parse(await exported([[conversation, [node]]]));
  assert.deepEqual(again, JSON.parse(file), 'and once more');
});

test('a file that is something else is refused with a reason', () => {
  assert.throws(() => imported('<html>'), /no JSON/);
  assert.throws(() => imported('{}'), /format is not/);
  assert.throws(() => imported('{"format": "playhouse-conversations", "version": 9}'), /version 9/);
  const bad = { format: 'playhouse-conversations', version: 1, conversations: [{ id: 'c', title: 't', messages: [{ id: 'n', role: 'root', text: '' }] }] };
  assert.throws(() => imported(JSON.stringify(bad)), /role/);
  bad.conversations[0].id = '"]';
  assert.throws(() => imported(JSON.stringify(bad)), /id/);
});

test('of a file only known fields are taken, and only of their types', () => {
  const messages = [{ id: 'n', parent: 7, role: 'assistant', text: 'a', told: { reason: {}, tokens: '9', ms: 5 }, logprobs: [{}], calls: [{ id: 1, function: { name: 'f' } }], evil: 1 }];
  const file = { format: 'playhouse-conversations', version: 1, conversations: [{ id: 'c', title: 't', updated: 'x', messages }] };
  const [[conversation, [node]]] = imported(JSON.stringify(file));
  assert.deepEqual(conversation, { id: 'c', title: 't', created: 0, updated: 0, current: null });
  assert.deepEqual(node, {
    id: 'n', parent: null, role: 'assistant', text: 'a', model: '', reasoning: '',
    calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: 'undefined' } }],
    told: { reason: null, tokens: 0, firstMs: 0, ms: 5 },
  });
});

test('the name of a file says what is in it', () => {
  const day = new Date('2026-01-02T03:04:05Z');
  assert.equal(fileName([[{ title: 'Über / ../ Häuser?' }]], day), 'playhouse-über-häuser.json');
  assert.equal(fileName([[{ title: '?' }]], day), 'playhouse-2026-01-02.json');
  assert.equal(fileName([[{}], [{}]], day), 'playhouse-2026-01-02.json');
});

test('a search finds titles and texts that have all its words', async () => {
  const store = new Fleeting();
  await store.save({ id: 'a', title: 'Red house' }, [{ id: '1', text: 'nothing' }]);
  await store.save({ id: 'b', title: 'Other' }, [{ id: '2', text: `${'x '.repeat(30)}the House is red` }]);
  const found = await search(store, 'HOUSE red');
  assert.deepEqual([...found.keys()], ['a', 'b']);
  assert.match(found.get('b'), /^…x.*the House is red$/);
  assert.equal((await search(store, 'house blue')).size, 0);
  assert.equal(snippet('short', 'o'), 'short');
});
