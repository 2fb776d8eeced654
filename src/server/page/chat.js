// The conversation: its messages, the answer in progress, and the button that stops it.

import { events, request } from './api.js';
import { $, h } from './dom.js';
import { wake } from './feed.js';
import { Answer, problem, said } from './message.js';
import { content, giveBack, shown, startPictures, take } from './pictures.js';
import { fields, loadModels, system } from './settings.js';

const STARTERS = ['Who are you?', 'Tell me a short story', 'What is 17 + 25?'];

let messages = [];
let speaking = null;
/** Results that the last answer's calls still need. */
let wanted = new Set();

const list = () => $('messages');

/** Keeps the end in view, unless the user reads further up. */
function follow(force) {
  const box = list();
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
  if (force || isAtEnd) box.scrollTop = box.scrollHeight;
}

function showEmpty() {
  const starter = (text) => h('button', {
    class: 'quiet',
    type: 'button',
    onclick: () => { $('ask').value = text; send(); },
  }, text);
  list().replaceChildren(h('div', { class: 'empty' },
    h('img', { src: 'page/house.svg', alt: '', width: 88, height: 88 }),
    h('h2', null, 'Somebody is home'),
    h('p', null, 'Everything you say is answered by the model on this server. While it speaks, have a look at the house.'),
    h('div', { class: 'row' }, STARTERS.map(starter))));
}

function show(element) {
  list().querySelector('.empty')?.remove();
  list().append(element);
  follow(true);
}

function setSpeaking(controller) {
  speaking = controller;
  $('send').hidden = controller !== null;
  $('stop').hidden = controller === null;
}

/** Reads the stream into `answer`. Returns a remark about its end, if there is one. */
async function read(response, answer, began) {
  const told = { reason: null, tokens: 0, firstMs: 0, ms: 0 };
  for await (const data of events(response)) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    if (chunk.usage) told.tokens = chunk.usage.completion_tokens;
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    const { delta } = choice;
    const hasNews = delta.content || delta.reasoning || delta.tool_calls;
    if (hasNews) told.firstMs ||= performance.now() - began;
    answer.add(delta, choice.logprobs);
    told.reason = choice.finish_reason ?? told.reason;
  }
  told.ms = performance.now() - began;
  return told;
}

/** Removes a question without an answer, because some chat templates reject two in a row. */
function takeBack(conversation, { message, element, text, pictures }) {
  conversation.splice(conversation.indexOf(message), 1);
  // The conversation was cleared meanwhile, or the user types another message.
  if (conversation !== messages || $('ask').value.trim()) return;
  element.remove();
  if (!list().childElementCount) showEmpty();
  $('ask').value = text;
  giveBack(pictures);
  grow();
}

/** Requests the next answer. `question` is the user's message; without it, a call's result asks. */
async function speak(settings, question) {
  const controller = new AbortController();
  setSpeaking(controller);
  const answer = new Answer(onResult);
  answer.onDraw = () => follow(false);
  show(answer.element);
  const began = performance.now();
  // If it is cleared meanwhile, it is another conversation.
  const conversation = messages;
  const body = {
    ...settings,
    messages: [...system(), ...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  try {
    const response = await request('v1/chat/completions', { body, signal: controller.signal });
    const told = await read(response, answer, began);
    answer.end(told);
    conversation.push(answer.message());
    wanted = new Set(told.reason === 'tool_calls' ? answer.calls.filter(Boolean).map(({ id }) => id) : []);
  } catch (error) {
    const wasStopped = controller.signal.aborted;
    answer.end({ reason: wasStopped ? 'stopped' : null });
    // The text so far stays in the conversation.
    if (answer.content) {
      conversation.push({ role: 'assistant', content: answer.content });
    } else {
      answer.element.remove();
      if (question) takeBack(conversation, question);
    }
    if (!wasStopped) show(problem(error.message));
  } finally {
    setSpeaking(null);
    follow(false);
  }
}

function onResult(call, content) {
  messages.push({ role: 'tool', tool_call_id: call.id, content });
  show(said('tool', content));
  wanted.delete(call.id);
  const settings = fields();
  if (!wanted.size && settings && !speaking) speak(settings);
}

async function send() {
  if (speaking) return;
  const text = $('ask').value.trim();
  const settings = fields();
  if (!settings) return;
  const pictures = take();
  if (!text && !pictures.length) return;
  $('ask').value = '';
  grow();
  const message = { role: 'user', content: content(pictures, text) };
  const question = { message, text, pictures, element: said('user', text, shown(pictures)) };
  messages.push(question.message);
  wanted.clear();
  show(question.element);
  wake();
  await speak(settings, question);
}

/** Makes the box as high as its content. */
function grow() {
  const box = $('ask');
  box.style.height = 'auto';
  box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
}

function clear() {
  speaking?.abort();
  messages = [];
  wanted.clear();
  showEmpty();
  $('ask').focus();
}

/** Starts the view. */
export function startChat() {
  showEmpty();
  startPictures((text) => show(problem(text)));
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('ask').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  $('ask').addEventListener('input', grow);
  $('stop').addEventListener('click', () => speaking?.abort());
  $('clear').addEventListener('click', clear);
  $('settings').addEventListener('submit', (event) => event.preventDefault());
  window.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && speaking && document.body.dataset.view === 'chat') speaking.abort();
  });
  // Beside the conversation where there is room.
  $('params').open = matchMedia('(min-width: 900px)').matches;
  loadModels().then(wake).catch((error) => {
    if (error.status !== 401) show(problem(`The list of models could not be read: ${error.message}`));
  });
}
