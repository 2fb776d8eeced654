// One message on the page, with its buttons. An answer that grows is drawn at most once a frame.

import { shownFile } from './attachments.js';
import { callCard } from './calls.js';
import { copyButton } from './clipboard.js';
import { h, say } from './dom.js';
import { editor } from './editor.js';
import { rateOf } from './fold.js';
import { icon } from './icons.js';
import { duration } from './numbers.js';
import { Prose } from './prose.js';
import { tokenText } from './tokens.js';

/** A drawing that takes longer is followed by a pause, so that the page stays quick. */
const DRAW_MS_MAX = 8;

const REASONS = { stopped: 'stopped by you', length: 'cut off at its limit', edited: 'edited by you' };

/** Returns what the foot of an answer says. */
export function footOf(told, isRunning) {
  if (!told) return '';
  const { reason, tokens, firstMs } = told;
  const rate = rateOf(told);
  return [
    REASONS[reason] ?? (reason || isRunning ? null : 'broken off'),
    tokens ? `${tokens} tokens` : null,
    firstMs ? `first after ${duration(firstMs)}` : null,
    rate ? `${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s` : null,
  ].filter(Boolean).join(' · ');
}

/** Returns the element where the next word will stand: the last line of a text. */
function lineOf(element) {
  const last = element.lastElementChild;
  return last?.matches('p, ul, ol, li, blockquote') ? lineOf(last) : element;
}

const tool = (name, label, onclick) =>
  h('button', { class: `tool ${name}`, type: 'button', 'aria-label': label, title: label, onclick }, icon(name));

/** What all messages have. `act` has the view's actions on a message. */
class Message {
  constructor(node, act, name) {
    this.node = node;
    this.act = act;
    this.name = h('h2', null, name);
    this.tools = h('div', { class: 'tools', role: 'group', 'aria-label': 'Message' });
    this.element = h('article', { class: `message ${node.role}`, data: { id: node.id } });
    this.shape = '';
  }

  /** Shows the buttons. `about` tells the branches, and what is possible. */
  refresh(about) {
    const { branches, isLast, isBusy } = about;
    const at = branches.findIndex(({ id }) => id === this.node.id);
    const shape = JSON.stringify([at, branches.length, isLast, isBusy]);
    if (shape === this.shape) return;
    this.shape = shape;
    const { node, act } = this;
    const step = (name, label, other) => {
      const button = tool(name, label, () => act.choose(other.id, name));
      button.disabled = !other || isBusy;
      return button;
    };
    const switcher = branches.length > 1 ? h('span', { class: 'branches' },
      step('before', 'Branch before', branches[at - 1]),
      h('span', { class: 'num' }, `${at + 1} / ${branches.length}`),
      step('after', 'Branch after', branches[at + 1])) : null;
    this.element.classList.toggle('last', isLast);
    this.tools.replaceChildren(...[
      switcher,
      copyButton('Copy the message', () => node.text),
      ...(isBusy ? [] : this.more(isLast)),
    ].filter(Boolean));
  }

  /** Replaces the text by a form. */
  edit(label) {
    const form = editor(this.node.text, label, (text) => { close(); this.act.edit(this.node.id, text); }, () => close(true));
    const close = (isCancelled) => {
      form.remove();
      this.element.classList.remove('editing');
      if (isCancelled) this.tools.querySelector('.edit')?.focus();
    };
    this.element.classList.add('editing');
    this.tools.before(form);
  }

  remove() {
    return tool('remove', 'Delete the message', () => this.act.remove(this.node.id));
  }
}

/** A question, or the result of a call. */
export class Question extends Message {
  constructor(node, act) {
    super(node, act, node.role === 'tool' ? 'Tool' : 'You');
    const files = (node.attachments ?? []).map(shownFile);
    this.element.append(this.name, ...files, ...(node.text ? [h('p', { class: 'plain', dir: 'auto' }, node.text)] : []), this.tools);
  }

  more() {
    const edit = this.node.role === 'user' ? [tool('edit', 'Edit and ask again', () => this.edit('Ask'))] : [];
    return [...edit, this.remove()];
  }
}

/** An answer, which may be in progress. */
export class Answer extends Message {
  #thoughts = new Prose();
  #prose = new Prose();
  #cards = [];
  #tokens = null;
  #numTokens = 0;
  #due = 0;
  #paused = 0;

  constructor(node, act) {
    super(node, act, node.model || 'Playhouse');
    this.summary = h('summary');
    this.thoughts = h('details', { class: 'thoughts', hidden: true }, this.summary, this.#thoughts.element);
    this.body = this.#prose.element;
    this.caret = h('span', { class: 'caret', 'aria-hidden': 'true' });
    this.foot = h('p', { class: 'foot num' });
    this.element.append(this.name, this.thoughts, this.body, this.foot, this.tools);
    this.#draw();
  }

  more(isLast) {
    const { act, node } = this;
    const canGoOn = isLast && node.text && !node.calls.length;
    return [
      node.calls.length ? null : tool('edit', 'Edit the answer', () => this.edit('Save')),
      tool('again', 'Answer again', () => act.regenerate(node.id)),
      canGoOn ? tool('goOn', 'Continue the answer', () => act.goOn(node.id)) : null,
      this.remove(),
    ].filter(Boolean);
  }

  refresh(about) {
    super.refresh(about);
    if (about.isRunning) {
      this.element.setAttribute('aria-busy', 'true');
    } else if (this.element.hasAttribute('aria-busy')) {
      this.element.removeAttribute('aria-busy');
      cancelAnimationFrame(this.#due);
      clearTimeout(this.#paused);
      this.#paused = 0;
      this.#due = 0;
    }
    this.isWanted = (call) => about.wanted.includes(call);
    this.#draw();
  }

  /** Draws in the next frame, or after a pause. */
  grow() {
    if (this.#due || this.#paused) return;
    this.#due = requestAnimationFrame(() => {
      const began = performance.now();
      this.#due = 0;
      this.#draw();
      const took = performance.now() - began;
      if (took <= DRAW_MS_MAX) return;
      this.#paused = setTimeout(() => { this.#paused = 0; this.grow(); }, 3 * took);
    });
  }

  #draw() {
    const { node } = this;
    const isRunning = this.element.hasAttribute('aria-busy');
    if (node.model) this.name.textContent = node.model;
    this.thoughts.hidden = !node.reasoning;
    say(this.summary, isRunning && !node.text ? 'Thinking…' : 'Thoughts');
    if (node.reasoning) this.#thoughts.show(node.reasoning, !isRunning);
    this.caret.remove();
    if (node.logprobs?.length) this.#drawTokens(isRunning);
    else this.#prose.show(node.text, !isRunning);
    if (isRunning) lineOf(this.body).append(this.caret);
    node.calls.forEach((call, i) => this.#card(call, i).update(this.isWanted?.(call) ?? false));
    this.foot.textContent = footOf(node.told, isRunning);
  }

  #card(call, i) {
    if (!this.#cards[i]) {
      this.#cards[i] = callCard(call, (one, result) => this.act.giveResult(one, result));
      this.foot.before(this.#cards[i].element);
    }
    return this.#cards[i];
  }

  #drawTokens(isRunning) {
    const { node } = this;
    if (!this.#tokens) {
      this.#tokens = tokenText();
      this.body.replaceChildren(this.#tokens.element);
    }
    node.logprobs.slice(this.#numTokens).forEach(this.#tokens.add);
    this.#numTokens = node.logprobs.length;
    // A token that ended the answer is not part of it: a mark stands for it.
    const last = this.#tokens.element.lastElementChild;
    const isPart = `${node.reasoning}${node.text}`.trimEnd().endsWith(last.textContent.trimEnd());
    if (!isRunning && node.told?.reason === 'stop' && !isPart) last.textContent = '∎';
  }
}

/** Returns the view of a message. */
export const viewOf = (node, act) => (node.role === 'assistant' ? new Answer(node, act) : new Question(node, act));
