// Keeps conversations in this browser (IndexedDB). Where it keeps nothing, they last as long as the
// page.

import { beginning } from './tree.js';

const NAME = 'playhouse';
const VERSION = 1;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const ended = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = () => resolve();
  transaction.onabort = () => reject(transaction.error);
});

function openDatabase() {
  const request = indexedDB.open(NAME, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore('conversations', { keyPath: 'id' });
    const messages = request.result.createObjectStore('messages', { keyPath: ['conversation', 'id'] });
    messages.createIndex('conversation', 'conversation');
  };
  return done(request);
}

class Kept {
  isKept = true;
  #database;

  constructor(database) {
    this.#database = database;
  }

  #begin(mode, ...names) {
    const transaction = this.#database.transaction(names, mode);
    return [transaction, ...names.map((name) => transaction.objectStore(name))];
  }

  conversations() {
    const [, conversations] = this.#begin('readonly', 'conversations');
    return done(conversations.getAll());
  }

  messages(conversation) {
    const [, messages] = this.#begin('readonly', 'messages');
    return done(messages.index('conversation').getAll(conversation));
  }

  /** Stores a conversation and some of its messages, all or nothing. */
  save(conversation, nodes = []) {
    const [transaction, conversations, messages] = this.#begin('readwrite', 'conversations', 'messages');
    conversations.put(conversation);
    for (const node of nodes) messages.put({ ...node, conversation: conversation.id });
    return ended(transaction);
  }

  removeMessages(conversation, ids) {
    const [transaction, messages] = this.#begin('readwrite', 'messages');
    for (const id of ids) messages.delete([conversation, id]);
    return ended(transaction);
  }

  remove(id) {
    const [transaction, conversations, messages] = this.#begin('readwrite', 'conversations', 'messages');
    conversations.delete(id);
    messages.delete(IDBKeyRange.bound([id], [id, []]));
    return ended(transaction);
  }

  /** Removes all conversations. */
  clear() {
    const [transaction, ...stores] = this.#begin('readwrite', 'conversations', 'messages');
    for (const one of stores) one.clear();
    return ended(transaction);
  }

  /** Calls `visit` with each message of all conversations. */
  each(visit) {
    const [transaction, messages] = this.#begin('readonly', 'messages');
    messages.openCursor().onsuccess = ({ target: { result: cursor } }) => {
      if (!cursor) return;
      visit(cursor.value);
      cursor.continue();
    };
    return ended(transaction);
  }
}

/** The same for as long as the page lives. */
export class Fleeting {
  isKept = false;
  #conversations = new Map();
  #messages = new Map();

  async conversations() {
    return [...this.#conversations.values()];
  }

  async messages(conversation) {
    return [...this.#messages.values()].filter((node) => node.conversation === conversation);
  }

  async save(conversation, nodes = []) {
    this.#conversations.set(conversation.id, { ...conversation });
    for (const node of nodes) this.#messages.set(`${conversation.id}/${node.id}`, { ...node, conversation: conversation.id });
  }

  async removeMessages(conversation, ids) {
    for (const id of ids) this.#messages.delete(`${conversation}/${id}`);
  }

  async remove(id) {
    this.#conversations.delete(id);
    for (const key of this.#messages.keys()) if (key.startsWith(`${id}/`)) this.#messages.delete(key);
  }

  async clear() {
    this.#conversations.clear();
    this.#messages.clear();
  }

  async each(visit) {
    this.#messages.forEach(visit);
  }
}

/** Opens the store. `isKept` of it is false where the browser keeps nothing. */
export async function openStore() {
  try {
    return new Kept(await openDatabase());
  } catch {
    // Private windows of some browsers, and blocked site data.
    return new Fleeting();
  }
}

/** Returns the conversations that have all words of `query`, each with the place that has it. */
export async function search(store, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Map();
  const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
  for (const { id, title } of await store.conversations()) if (fits(title)) found.set(id, '');
  await store.each(({ conversation, text }) => {
    if (!found.has(conversation) && fits(text)) found.set(conversation, snippet(text, words[0] ?? ''));
  });
  return found;
}

/** Returns the surroundings of a word. */
export function snippet(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 20);
  const part = beginning(text.slice(at).replace(/^[\udc00-\udfff]/, ''), 80).replace(/\s+/g, ' ').trim();
  return `${at ? '…' : ''}${part}${at + 80 < text.length ? '…' : ''}`;
}
