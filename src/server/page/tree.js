// A conversation as a tree of messages. An edited question and another answer are branches; a path
// from the first message to a leaf is what the user sees, and what the model reads. Pure.

let lastMs = 0;
let count = 0;

/** Returns an id that sorts behind all ids before it. */
export function newId(now = Date.now(), random = Math.random()) {
  count = now > lastMs ? 0 : count + 1;
  lastMs = Math.max(lastMs, now);
  const part = (number, digits) => number.toString(36).padStart(digits, '0');
  return part(lastMs, 9) + part(count, 4) + part(Math.floor(random * 36 ** 6), 6);
}

/** Returns the beginning of a text, which does not end within a character. */
export const beginning = (text, length) => text.slice(0, length).replace(/[\ud800-\udbff]$/, '');

/** Longest title made of a question, in characters. */
const TITLE_MAX = 60;

/** Returns the title of a conversation that begins with `text`. */
export function titleOf(text) {
  const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
  if (line.length <= TITLE_MAX) return line || 'Conversation';
  const cut = line.slice(0, TITLE_MAX);
  return `${beginning(cut, Math.max(cut.lastIndexOf(' '), TITLE_MAX / 2)).trimEnd()}…`;
}

/** The messages of one conversation. Each has `id`, `parent` (an id or `null`), `role`, `text`. */
export class Tree {
  #nodes = new Map();

  constructor(nodes = []) {
    for (const node of [...nodes].sort((a, b) => (a.id < b.id ? -1 : 1))) this.#nodes.set(node.id, node);
  }

  get size() {
    return this.#nodes.size;
  }

  all() {
    return [...this.#nodes.values()];
  }

  get(id) {
    return this.#nodes.get(id) ?? null;
  }

  /** Adds a message under `parent`. Returns it. */
  add(parent, fields) {
    const node = { ...fields, id: newId(), parent };
    this.#nodes.set(node.id, node);
    return node;
  }

  /** Returns the messages that follow `id`, in the order of their making. */
  children(id) {
    return this.all().filter(({ parent }) => parent === id);
  }

  /** Returns the branches at a message, itself among them. */
  siblings(id) {
    const node = this.get(id);
    return node ? this.children(node.parent) : [];
  }

  /** Returns the leaf that the newest branches below `id` lead to; of `null`, the whole tree's. */
  leaf(id) {
    for (let at = id; ;) {
      const next = this.children(at).at(-1);
      if (!next) return at;
      at = next.id;
    }
  }

  /** Returns the messages from the first one to `id`. */
  path(id) {
    const found = [];
    const seen = new Set();
    for (let node = this.get(id); node && !seen.has(node.id); node = this.get(node.parent)) {
      seen.add(node.id);
      found.push(node);
    }
    return found.reverse();
  }

  /** Returns a message and all that follow it. */
  below(id) {
    const found = this.get(id) ? [this.get(id)] : [];
    for (let i = 0; i < found.length; i += 1) found.push(...this.children(found[i].id));
    return found;
  }

  /** Removes a message and all that follow it. Returns the leaf to show instead. */
  remove(id) {
    const branches = this.siblings(id);
    const at = branches.findIndex((node) => node.id === id);
    const beside = branches[at - 1] ?? branches[at + 1];
    const parent = this.get(id)?.parent ?? null;
    for (const node of this.below(id)) this.#nodes.delete(node.id);
    return beside ? this.leaf(beside.id) : parent;
  }
}

/** Returns the calls of the path's last answer whose results are missing. */
export function wanted(path) {
  const at = path.findLastIndex(({ role }) => role === 'assistant');
  const given = new Set(path.slice(at + 1).map(({ callId }) => callId));
  const { calls = [], told } = path[at] ?? {};
  return told?.reason === 'tool_calls' ? calls.filter(({ id }) => !given.has(id)) : [];
}

/** Returns the message that a new question follows. A question without an answer gets a branch. */
export function placeOf(tree, current) {
  const last = tree.get(current);
  return last?.role === 'user' ? last.parent : current;
}
