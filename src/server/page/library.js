// The list of conversations: search, rename, export, import, delete.

import { $, h } from './dom.js';
import { icon } from './icons.js';
import { confirmed } from './question.js';
import { search } from './store.js';
import { exported, fileName, imported } from './transfer.js';
import { newId } from './tree.js';

const SEARCH_MS = 150;
const DAY_MS = 86_400_000;

/** Returns the heading that a conversation stands under. Days begin at midnight. */
export function ageOf(updated, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (updated >= midnight) return 'Today';
  if (updated >= midnight - DAY_MS) return 'Yesterday';
  return updated >= midnight - 7 * DAY_MS ? 'Last seven days' : 'Earlier';
}

function download(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = h('a', { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const tool = (name, label, onclick) =>
  h('button', { class: `tool ${name}`, type: 'button', 'aria-label': label, title: label, onclick }, icon(name));

export class Library {
  #store;
  #act;
  #chosen = null;
  #timer = 0;
  #turn = 0;
  #renaming = null;
  /** What the list shows. */
  #shape = '';
  /** Whether a press on the list is in progress: a row that is replaced meanwhile gets no click. */
  #isPressed = false;

  /**
   * `act` opens, renames and removes conversations, tells problems and other tabs, and returns the
   * conversations that the page holds.
   */
  constructor(store, act) {
    this.#store = store;
    this.#act = act;
    $('find').addEventListener('input', () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.draw(), SEARCH_MS);
    });
    $('conversations').addEventListener('pointerdown', () => { this.#isPressed = true; });
    for (const name of ['pointerup', 'pointercancel']) {
      window.addEventListener(name, () => {
        if (!this.#isPressed) return;
        this.#isPressed = false;
        // The click comes first.
        setTimeout(() => this.draw());
      });
    }
    $('export-all').addEventListener('click', () => this.#export(() => true));
    $('delete-all').addEventListener('click', () => this.#removeAll());
    $('import').addEventListener('click', () => $('import-file').click());
    $('import-file').addEventListener('change', () => this.#import());
    $('library-note').textContent = store.isKept
      ? 'Kept in this browser alone.'
      : 'This browser keeps nothing: conversations end with the page.';
  }

  /** Marks the conversation that is open. */
  choose(id) {
    this.#chosen = id;
    return this.draw();
  }

  async draw() {
    this.#turn += 1;
    const turn = this.#turn;
    const query = $('find').value.trim();
    const [all, found] = await Promise.all([this.#store.conversations(), query ? search(this.#store, query) : null]);
    if (turn !== this.#turn || this.#renaming || this.#isPressed) return;
    const shown = all.filter(({ id }) => !found || found.has(id)).sort((a, b) => b.updated - a.updated);
    const rows = shown.map(({ id, title, updated }) => [id, title, ageOf(updated), found?.get(id) ?? '']);
    const shape = JSON.stringify([rows, this.#chosen, query]);
    for (const name of ['export-all', 'delete-all']) $(name).disabled = !all.length && !this.#act.held().length;
    if (shape === this.#shape) return;
    this.#shape = shape;
    this.#replace(shown.flatMap((conversation, i) => {
      const [, , age, snippet] = rows[i];
      const heading = age === rows[i - 1]?.[2] ? [] : [h('li', { class: 'age' }, age)];
      return [...heading, this.#item(conversation, snippet)];
    }), query ? 'Nothing is found.' : 'No conversations yet.');
  }

  /** Shows other items. The button that has the focus keeps it. */
  #replace(items, nothing) {
    const list = $('conversations');
    const { activeElement: focused } = document;
    const [id, name] = list.contains(focused) ? [focused.closest('li')?.dataset.id, focused.className] : [];
    list.replaceChildren(...(items.length ? items : [h('li', { class: 'note' }, nothing)]));
    if (!name) return;
    const item = items.find(({ dataset }) => dataset.id === id) ?? items[0];
    [...(item?.querySelectorAll('button') ?? [])].find(({ className }) => className === name)?.focus();
  }

  #item(conversation, snippet) {
    const { id, title } = conversation;
    const isChosen = id === this.#chosen;
    return h('li', { class: isChosen ? 'chosen' : null, data: { id } },
      h('button', { class: 'open', type: 'button', 'aria-current': isChosen ? 'true' : null, onclick: () => this.#act.open(id) },
        h('span', { class: 'title', dir: 'auto' }, title), snippet ? h('span', { class: 'snippet', dir: 'auto' }, snippet) : null),
      h('span', { class: 'tools' },
        tool('edit', `Rename ${title}`, () => this.#rename(conversation)),
        tool('save', `Export ${title}`, () => this.#export((one) => one.id === id)),
        tool('remove', `Delete ${title}`, () => this.#remove(conversation))));
  }

  #rename({ id, title }) {
    const item = $('conversations').querySelector(`[data-id="${id}"]`);
    const box = h('input', { 'aria-label': 'Name of the conversation', value: title, maxlength: 200, dir: 'auto' });
    const form = h('form', { class: 'rename' }, box);
    this.#renaming = id;
    this.#shape = '';
    const close = async (isUsed) => {
      if (this.#renaming !== id) return;
      this.#renaming = null;
      const name = box.value.trim();
      if (isUsed && name && name !== title) await this.#act.rename(id, name);
      await this.draw();
      $('conversations').querySelector(`[data-id="${id}"] .open`)?.focus();
    };
    form.addEventListener('submit', (event) => { event.preventDefault(); close(true); });
    box.addEventListener('blur', () => close(true));
    box.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      close(false);
    });
    item.replaceChildren(form);
    box.focus();
    box.select();
  }

  async #remove({ id, title }) {
    if (!await confirmed('Delete the conversation?', `“${title}” is deleted from this browser. Nothing can bring it back.`, 'Delete')) return;
    await this.#act.remove(id);
  }

  async #removeAll() {
    const text = 'They are deleted from this browser. Nothing can bring them back: export them first to keep them.';
    if (await confirmed('Delete all conversations?', text, 'Delete all')) await this.#act.removeAll();
  }

  /**
   * Exports the conversations that `fits` accepts, as the store has them now. Those that the page
   * holds are newer, and a full store may lack them.
   */
  async #export(fits) {
    const held = this.#act.held().map(({ conversation, tree }) => [conversation, tree.all()]);
    const ids = new Set(held.map(([{ id }]) => id));
    const stored = (await this.#store.conversations()).filter((one) => !ids.has(one.id) && fits(one));
    const read = await Promise.all(stored.map(async (one) => [one, await this.#store.messages(one.id)]));
    const pairs = [...read, ...held.filter(([one]) => fits(one))];
    download(await exported(pairs), fileName(pairs));
  }

  async #import() {
    const box = $('import-file');
    let count = 0;
    try {
      // All files are read before the first conversation is kept.
      const pairs = (await Promise.all([...box.files].map((file) => file.text()))).flatMap(imported);
      const known = new Set((await this.#store.conversations()).map(({ id }) => id));
      for (const [conversation, nodes] of pairs) {
        // A conversation that is here already stays as it is; the file's becomes a copy.
        const id = known.has(conversation.id) ? newId() : conversation.id;
        known.add(id);
        await this.#store.save({ ...conversation, id }, nodes);
        count += 1;
      }
    } catch (error) {
      this.#act.tell(`${count ? `Only ${count} of the conversations were` : 'Nothing was'} imported: ${error.message || error.name}.`);
    }
    box.value = '';
    if (count) this.#act.told();
    await this.draw();
  }
}
