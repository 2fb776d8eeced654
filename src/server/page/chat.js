// The view of conversations: the list, the open one, and the form that asks.

import { request } from './api.js';
import { areRead, areThere, startAttachments, take } from './attachments.js';
import { $, say } from './dom.js';
import { grow } from './editor.js';
import { wake } from './feed.js';
import { icon } from './icons.js';
import { kept, keptByTab } from './kept.js';
import { Library } from './library.js';
import { confirmed } from './question.js';
import { fields, loadModels, startSettings } from './settings.js';
import { openStore } from './store.js';
import { Talk, fresh } from './talk.js';
import { Thread } from './thread.js';

const OPEN = 'playhouse-open';
const SYSTEM = 'playhouse-system';
const DRAFT = 'playhouse-draft';
const WIDE = matchMedia('(min-width: 900px)');
/** Keyboards on a screen have no other key for a new line. */
const TOUCH = matchMedia('(hover: none) and (pointer: coarse)');

/** Resolves when the store is open. A question may come before. */
let ready = null;
let store = null;
let library = null;
let talk = null;
/** Conversations whose answers are in progress, by id: they go on while another one is shown. */
const busy = new Map();
const others = 'BroadcastChannel' in window ? new BroadcastChannel('playhouse') : null;

/** Tells other tabs what changed: a conversation, to which more may come soon, or several. */
const told = (id = null, isBusy = false) => others?.postMessage({ id, isBusy });

/** The actions on messages. Those that ask the model need valid settings. */
const withFields = (call) => async (...given) => {
  const found = fields();
  if (found) await run((one) => call(one, ...given, found));
};
const act = {
  edit: withFields((one, id, text, found) => one.edit(id, text, found)),
  regenerate: withFields((one, id, found) => one.regenerate(id, found)),
  goOn: withFields((one, id, found) => one.goOn(id, found)),
  giveResult: withFields((one, call, text, found) => one.giveResult(call, text, found)),
  tryAgain: withFields((one, found) => (one.problem?.retry ?? ((again) => one.answer(again)))(found)),
  async choose(id, name) {
    const done = talk.choose(id);
    // The button that was pressed went with the other branch.
    thread.focus(id, name);
    await done;
  },
  async remove(id) {
    const more = talk.tree.below(id).length - 1;
    const text = more ? `The ${more === 1 ? 'message' : `${more} messages`} after it ${more === 1 ? 'is' : 'are'} deleted too.` : 'Nothing can bring it back.';
    if (!await confirmed('Delete the message?', text, 'Delete')) return;
    await talk.remove(id);
    $('ask').focus();
  },
};
const thread = new Thread(act, (text) => { $('ask').value = text; send(); });

/** Runs what asks the model. The conversation stays known until its answer is complete. */
async function run(call) {
  const mine = talk;
  if (mine.isBusy) return;
  busy.set(mine.conversation.id, mine);
  wake();
  const isByKey = document.activeElement?.matches(':focus-visible');
  try {
    const done = call(mine);
    // The button that a key pressed is gone now.
    if (isByKey && document.activeElement === document.body) $('ask').focus();
    await done;
  } finally {
    // Another try may have begun.
    if (!mine.isBusy) busy.delete(mine.conversation.id);
    // The server may have another model now.
    if (mine.problem?.status === 404) loadModels().catch(() => {});
  }
}

/** Told once: each save of a full store fails. */
let isLossTold = false;

function onLoss(error) {
  if (!isLossTold) thread.tell(`The browser could not keep the conversation: ${error.message || error.name}. Export all, or delete others.`);
  isLossTold = true;
  library.draw();
}

function drawButtons() {
  const isRunning = talk.running !== null;
  $('send').hidden = isRunning;
  $('stop').hidden = !isRunning;
  say($('talk-title'), talk.conversation.title || 'New conversation');
}

/** Shows a conversation. */
function show(next) {
  const before = talk;
  if (before) {
    const onSave = () => { library.draw(); told(before.conversation.id, before.isBusy); };
    before.view = { onPath() {}, onNode() {}, onSave, onLoss };
  }
  talk = next;
  talk.view = {
    onPath: () => { thread.draw(); drawButtons(); },
    onNode: (node) => thread.grow(node),
    onSave: () => { remember(); library.draw(); told(next.conversation.id, next.isBusy); },
    onLoss,
  };
  $('system').value = talk.conversation.system ?? '';
  thread.show(talk);
  drawButtons();
  remember();
  library.choose(talk.conversation.id);
}

/** A tab shows its conversation again after it was loaded again. */
const remember = () => keptByTab.set(OPEN, talk.tree.size ? talk.conversation.id : null);

const begin = () => show(new Talk(fresh(kept.get(SYSTEM) ?? ''), [], store, request));

async function open(id) {
  closeLibrary();
  if (busy.has(id)) {
    show(busy.get(id));
    return;
  }
  const conversation = (await store.conversations()).find((one) => one.id === id);
  if (conversation) show(new Talk(conversation, await store.messages(id), store, request));
}

/** Returns the conversations in this page's memory that have messages. */
const held = () => [...new Set([...busy.values(), talk])].filter((one) => one?.tree.size);

/**
 * Shows what another tab changed in the open conversation, `id` or among several. A form that is
 * open stays as it is, and so does a conversation that a full browser does not keep.
 */
async function renew({ id, isBusy }) {
  const open = talk.conversation.id;
  const canShow = () => talk.conversation.id === open && talk.tree.size && !talk.isBusy && !$('messages').querySelector('form');
  if (isBusy || (id !== null && id !== open) || isLossTold || !canShow()) return;
  const stored = (await store.conversations()).find((one) => one.id === open);
  const messages = stored ? await store.messages(open) : [];
  if (!canShow()) return;
  if (!stored) begin();
  else if (stored.updated > talk.conversation.updated || stored.title !== talk.conversation.title) show(new Talk(stored, messages, store, request));
}

function beginAnew() {
  closeLibrary();
  begin();
  $('ask').focus();
}

async function rename(id, title) {
  if (id === talk.conversation.id) {
    await talk.rename(title);
    return;
  }
  const conversation = (await store.conversations()).find((one) => one.id === id);
  await store.save({ ...conversation, title });
  told(id);
}

/** Waits for the end of an answer. Stopping stores the answer so far: a removal comes after it. */
async function ended(id) {
  while (busy.has(id)) await new Promise((resolve) => { setTimeout(resolve, 10); });
}

async function remove(id) {
  busy.get(id)?.stop();
  await ended(id);
  await store.remove(id);
  told(id);
  if (id === talk.conversation.id) begin();
  else await library.draw();
}

async function removeAll() {
  for (const one of busy.values()) one.stop();
  await Promise.all([...busy.keys()].map(ended));
  await store.clear();
  told();
  begin();
}

async function send() {
  await Promise.all([ready, areRead()]);
  if (talk.isBusy) return;
  const text = $('ask').value.trim();
  const found = fields();
  if (!found || (!text && !areThere())) return;
  const attachments = take();
  $('ask').value = '';
  keptByTab.set(DRAFT, null);
  grow($('ask'), 200);
  thread.forget();
  await run((one) => one.say(text, attachments, found));
}

const isLibraryOpen = () => $('show-library').getAttribute('aria-expanded') === 'true';

function setLibrary(isOpen) {
  $('show-library').setAttribute('aria-expanded', isOpen);
  $('view-chat').dataset.library = isOpen ? 'open' : 'closed';
}

function find() {
  setLibrary(true);
  $('find').focus();
}

function press(event, act) {
  event.preventDefault();
  act();
}

function closeLibrary() {
  if (!WIDE.matches) setLibrary(false);
}

function startLibrary() {
  library = new Library(store, { open, rename, remove, removeAll, held, told, tell: (text) => thread.tell(text) });
  $('show-library').append(icon('list'));
  $('new').prepend(icon('add'));
  $('new-here').append(icon('add'));
  setLibrary(WIDE.matches);
  WIDE.addEventListener('change', () => setLibrary(WIDE.matches));
  $('show-library').addEventListener('click', () => {
    setLibrary(!isLibraryOpen());
    if (isLibraryOpen()) find();
  });
  $('library').addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || WIDE.matches) return;
    event.stopPropagation();
    setLibrary(false);
    $('show-library').focus();
  });
  // On a phone it lies above the conversation, and a tap beside it closes it.
  document.addEventListener('pointerdown', (event) => {
    if (isLibraryOpen() && !$('library').contains(event.target) && !$('show-library').contains(event.target)) closeLibrary();
  });
  for (const id of ['new', 'new-here']) $(id).addEventListener('click', beginAnew);
  others?.addEventListener('message', ({ data }) => {
    library.draw();
    renew(data);
  });
  // Before, no press could have done anything.
  $('library').inert = false;
  for (const id of ['show-library', 'new-here']) $(id).disabled = false;
}

function startComposer() {
  startAttachments(async (text) => {
    await ready;
    thread.tell(text);
  });
  $('send').append(icon('send'));
  $('stop').append(icon('stop'));
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('ask').addEventListener('keydown', (event) => {
    // Safari's key that ends a composition has this code, and no mark of it.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    if (TOUCH.matches && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    send();
  });
  $('ask').addEventListener('input', () => {
    grow($('ask'), 200);
    keptByTab.set(DRAFT, $('ask').value || null);
  });
  $('ask').value ||= keptByTab.get(DRAFT) ?? '';
  grow($('ask'), 200);
  $('stop').addEventListener('click', () => talk.stop());
  $('system').addEventListener('change', () => {
    kept.set(SYSTEM, $('system').value || null);
    talk?.instruct($('system').value);
  });
  window.addEventListener('keydown', (event) => {
    // A dialog has its own keys.
    if (document.body.dataset.view !== 'chat' || !talk || document.querySelector('dialog[open]')) return;
    const isCommand = event.ctrlKey || event.metaKey;
    // In a search box, it empties the box; within a composition, it ends that.
    if (event.key === 'Escape' && talk.running && !event.isComposing && event.target !== $('find')) talk.stop();
    else if (isCommand && event.shiftKey && event.key.toLowerCase() === 'o') press(event, beginAnew);
    else if (isCommand && event.key.toLowerCase() === 'k') press(event, find);
  });
}

async function prepare() {
  store = await openStore();
  startLibrary();
  const last = keptByTab.get(OPEN);
  begin();
  if (last) await open(last);
  // Before, what is typed would be replaced by that of the conversation.
  $('system').disabled = false;
}

/** Starts the view. */
export async function startChat() {
  startSettings();
  startComposer();
  ready = prepare();
  await ready;
  try {
    await loadModels();
    wake();
  } catch (error) {
    if (error.status !== 401) thread.tell(`The list of models could not be read: ${error.message}`);
  }
}
