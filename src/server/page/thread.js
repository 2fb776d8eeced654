// The messages of a conversation on the page: those of the path that the user chose, and what went
// wrong at its end.

import { $, h } from './dom.js';
import { icon } from './icons.js';
import { viewOf } from './message.js';

const STARTERS = ['Who are you?', 'Tell me a short story', 'What is 17 + 25?'];
/** A user who scrolls down to within this follows the answer again. */
const FOLLOW_PX = 120;

/** Returns a notice with a button that tries again. */
function notice({ title, advice, detail }, again) {
  return h('div', { class: 'message problem', role: 'alert' },
    h('strong', null, title),
    h('p', null, advice),
    detail ? h('p', { class: 'detail' }, detail) : null,
    again ? h('button', { class: 'quiet again', type: 'button', onclick: again }, icon('again'), ' Try again') : null);
}

export class Thread {
  #views = new Map();
  #talk = null;
  #act;
  #ask;
  #notes = [];
  /** Whether the end stays in view. */
  #isFollowing = true;
  #lastTop = 0;
  #observer = new ResizeObserver(() => this.follow());

  /** `act` has the actions on messages, `ask` sends a question. */
  constructor(act, ask) {
    this.#act = act;
    this.#ask = ask;
    this.#list.addEventListener('scroll', () => this.#onScroll(), { passive: true });
    this.#list.addEventListener('keydown', (event) => this.#onKey(event));
  }

  get #list() {
    return $('messages');
  }

  /** Shows a conversation. */
  show(talk) {
    this.#talk = talk;
    this.#views.clear();
    this.#notes = [];
    this.#list.replaceChildren();
    this.draw();
    this.follow(true);
  }

  /** A user who scrolls up reads there; one who comes back to the end follows it again. */
  #onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#list;
    const rest = scrollHeight - scrollTop - clientHeight;
    const isUp = scrollTop < this.#lastTop - 1;
    if (rest < (isUp ? 2 : FOLLOW_PX)) this.#isFollowing = true;
    else if (isUp) this.#isFollowing = false;
    this.#lastTop = scrollTop;
  }

  /**
   * The key End means the end of the answer as it grows. The browser scrolls to where the end was
   * when the key was pressed, and a quick answer is further by then.
   */
  #onKey(event) {
    if (event.key !== 'End' || event.shiftKey || event.target.matches('textarea, input')) return;
    event.preventDefault();
    this.follow(true);
  }

  /** Keeps the end in view, unless the user reads further up. */
  follow(isForced = false) {
    this.#isFollowing ||= isForced;
    if (this.#isFollowing) this.#list.scrollTop = this.#list.scrollHeight;
  }

  /** Reports a problem that belongs to no message. */
  tell(text) {
    this.#notes.push(h('div', { class: 'message problem', role: 'alert' }, text));
    this.draw();
    this.follow(true);
  }

  /** Draws the answer in progress. */
  grow(node) {
    this.#views.get(node.id)?.grow();
  }

  /** Draws the path. Messages that are there stay. */
  draw() {
    const { path, running, wanted } = this.#talk;
    const views = path.map((node) => {
      if (!this.#views.has(node.id)) this.#views.set(node.id, viewOf(node, this.#act));
      return this.#views.get(node.id);
    });
    const shown = views.map(({ element }) => element);
    const elements = [...shown, ...this.#notes, ...this.#end()];
    const list = this.#list;
    for (const child of [...list.children]) if (!elements.includes(child)) child.remove();
    const hasNew = elements.some((element, i) => {
      if (list.children[i] === element) return false;
      list.insertBefore(element, list.children[i] ?? null);
      return true;
    });
    if (hasNew) elements.forEach((element, i) => list.children[i] !== element && list.insertBefore(element, list.children[i] ?? null));
    views.forEach((view, i) => view.refresh({
      branches: this.#talk.tree.siblings(view.node.id),
      isLast: i === views.length - 1,
      isBusy: running !== null,
      isRunning: running?.node === view.node,
      wanted,
    }));
    this.#observer.disconnect();
    if (elements.length) this.#observer.observe(elements.at(-1));
    this.follow(hasNew && running !== null);
  }

  /** Returns what stands below the messages. */
  #end() {
    const talk = this.#talk;
    const { path, problem, running, wanted } = talk;
    if (!path.length) return this.#notes.length ? [] : [this.#empty()];
    if (running) return [];
    if (problem) return [notice(problem, () => this.#act.tryAgain())];
    if (path.at(-1).role === 'assistant' || wanted.length) return [];
    return [h('div', { class: 'message unanswered' }, h('p', null, 'This question has no answer.'),
      h('button', { class: 'quiet again', type: 'button', onclick: () => this.#act.tryAgain() }, icon('again'), ' Try again'))];
  }

  #empty() {
    const starter = (text) => h('button', { class: 'quiet', type: 'button', onclick: () => this.#ask(text) }, text);
    return h('div', { class: 'empty' },
      h('img', { src: 'page/house.svg', alt: '', width: 88, height: 88 }),
      h('h2', null, 'Somebody is home'),
      h('p', null, 'The model on this server answers what you say. While it speaks, have a look at the house.'),
      h('div', { class: 'row' }, STARTERS.map(starter)));
  }

  /** Moves the focus to a button of a message, or to its first one where that one is off. */
  focus(id, name) {
    const tools = this.#views.get(id)?.tools;
    (tools?.querySelector(`.${name}:enabled`) ?? tools?.querySelector('button:enabled'))?.focus();
  }

  /** Removes what `tell` reported. */
  forget() {
    this.#notes = [];
  }
}
