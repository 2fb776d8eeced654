// One message on the page. An answer that grows is drawn at most once a frame.

import { duration, h } from './dom.js';
import { markdown } from './markdown.js';
import { tokenText } from './tokens.js';

/** Below this, a rate shows how pieces arrived, and not how fast they were made. */
const RATE_MS_MIN = 50;

const NAMES = { user: 'You', assistant: 'Playhouse', tool: 'Tool' };

function frame(role, ...children) {
  return h('article', { class: `message ${role}` }, h('h2', null, NAMES[role]), ...children);
}

/** A message of the user or the system, with its pictures. */
export function said(role, text, pictures = []) {
  return frame(role, pictures, text ? h('p', { class: 'plain' }, text) : null);
}

/** An error. */
export function problem(text) {
  return h('p', { class: 'message problem', role: 'alert' }, text);
}

/** A tool call, and a place for its result. */
function callCard(call, onResult) {
  const name = h('code');
  const given = h('pre', null, h('code'));
  const element = h('section', { class: 'call' }, h('h3', null, 'Calls ', name), given);
  const update = () => {
    name.textContent = call.function.name;
    let text = call.function.arguments;
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // The text is incomplete, or no JSON at all, and is shown unchanged.
    }
    given.firstChild.textContent = text;
  };
  const askForResult = () => {
    const result = h('textarea', { rows: 2, 'aria-label': `What ${call.function.name} gave` });
    const form = h('form', { class: 'result' }, result, h('button', { class: 'quiet' }, 'Give the result'));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      form.remove();
      onResult(call, result.value);
    });
    element.append(form);
  };
  return { element, update, askForResult };
}

/** An answer that arrives in pieces. */
export class Answer {
  content = '';
  reasoning = '';
  calls = [];
  #cards = [];
  #tokens = null;
  #due = 0;
  #onResult;

  constructor(onResult) {
    this.#onResult = onResult;
    this.thoughts = h('details', { class: 'thoughts', hidden: true },
      h('summary', null, 'Thoughts'), h('div', { class: 'prose' }));
    this.body = h('div', { class: 'prose' }, h('span', { class: 'caret', 'aria-hidden': 'true' }));
    this.foot = h('p', { class: 'foot num' });
    this.element = frame('assistant', this.thoughts, this.body, this.foot);
    this.element.setAttribute('aria-busy', 'true');
  }

  /** Adds the next piece. */
  add(delta, logprobs) {
    this.content += delta.content ?? '';
    this.reasoning += delta.reasoning ?? '';
    for (const piece of delta.tool_calls ?? []) this.#addCall(piece);
    if (logprobs?.content?.length) {
      this.#tokens ??= tokenText();
      logprobs.content.forEach(this.#tokens.add);
    }
    this.#due ||= requestAnimationFrame(() => this.#draw());
  }

  #addCall({ index, id, function: { name, arguments: text } }) {
    if (!this.calls[index]) {
      this.calls[index] = { id, type: 'function', function: { name: '', arguments: '' } };
      this.#cards[index] = callCard(this.calls[index], this.#onResult);
      this.foot.before(this.#cards[index].element);
    }
    const { function: call } = this.calls[index];
    if (name) call.name = name;
    call.arguments += text ?? '';
    this.#cards[index].update();
  }

  #draw() {
    this.#due = 0;
    if (this.reasoning) {
      this.thoughts.hidden = false;
      this.thoughts.lastChild.replaceChildren(...markdown(this.reasoning));
    }
    const text = this.#tokens ? [this.#tokens.element] : markdown(this.content);
    const caret = this.element.hasAttribute('aria-busy') ? [h('span', { class: 'caret', 'aria-hidden': 'true' })] : [];
    this.body.replaceChildren(...text, ...caret);
    this.onDraw?.();
  }

  /** Ends the answer, which is complete or was cut off. */
  end({ reason, tokens, firstMs, ms }) {
    cancelAnimationFrame(this.#due);
    this.element.removeAttribute('aria-busy');
    // A token that ended the answer is not part of it: a mark stands for it.
    const last = this.#tokens?.element.lastElementChild;
    const isPart = last && `${this.reasoning}${this.content}`.trimEnd().endsWith(last.textContent.trimEnd());
    if (reason === 'stop' && last && !isPart) last.textContent = '∎';
    this.#draw();
    const rate = tokens > 1 && ms - firstMs >= RATE_MS_MIN ? ((tokens - 1) / (ms - firstMs)) * 1000 : 0;
    const told = [
      reason === 'stopped' ? 'stopped by you' : reason === 'length' ? 'cut off at its limit' : null,
      tokens ? `${tokens} tokens` : null,
      firstMs ? `first after ${duration(firstMs)}` : null,
      rate ? `${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s` : null,
    ];
    this.foot.textContent = told.filter(Boolean).join(' · ');
    if (reason === 'tool_calls') this.#cards.forEach((card) => card.askForResult());
  }

  /** Returns the message in the form that the API reads. */
  message() {
    const calls = this.calls.filter(Boolean);
    const message = { role: 'assistant', content: this.content || null };
    return calls.length ? { ...message, tool_calls: calls } : { ...message, content: this.content };
  }
}
