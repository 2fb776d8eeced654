// A code block: its language, a button that copies it, and its colours. Long code that grows is
// divided into parts, so that a browser lays out the last one alone.

import { h } from './dom.js';
import { copyButton } from './clipboard.js';
import { highlighted, isReady } from './highlight.js';

/** Longest code whose colours follow each piece. */
const LIVE_MAX = 6_000;
/** Longest code with colours. */
const COLOUR_MAX = 40_000;
/** Length of a part, which ends with its line. */
const PART = 4_000;

/** Divides text that grows at the ends of lines. Returns its final parts and the rest. */
export function partsOf(text) {
  const parts = [];
  let from = 0;
  while (text.length - from > PART) {
    const end = text.indexOf('\n', from + PART);
    if (end < 0) break;
    parts.push(text.slice(from, end));
    from = end + 1;
  }
  return [...parts, text.slice(from)];
}

/** Returns a code block, which `show` lets grow. */
export function codeBlock(given, givenInfo, isComplete = true) {
  const label = h('span');
  const code = h('code');
  let text = '';
  let language = '';
  let numFinal = 0;
  let turn = 0;
  let shape = null;

  function plain() {
    const parts = partsOf(text);
    // Parts follow each other only if no colours came between.
    if (!code.querySelector(':scope > .part')) {
      code.replaceChildren();
      numFinal = 0;
    }
    while (code.childElementCount > numFinal) code.lastChild.remove();
    for (; numFinal < parts.length - 1; numFinal += 1) code.append(h('span', { class: 'part' }, parts[numFinal]));
    code.append(h('span', { class: 'part' }, parts.at(-1)));
  }

  async function colour() {
    turn += 1;
    const mine = turn;
    const nodes = await highlighted(text, language);
    // Text that came meanwhile has a turn of its own.
    if (mine !== turn) return;
    if (nodes) code.replaceChildren(...nodes);
    else plain();
  }

  function show(next, isEnd, info = givenInfo) {
    const nextShape = JSON.stringify([next.length, isEnd, info]);
    if (next === text && nextShape === shape) return;
    shape = nextShape;
    text = next;
    language = (info ?? '').trim().split(/[\s,{]/)[0];
    label.textContent = language || 'text';
    if (text.length > LIVE_MAX ? text.length > COLOUR_MAX || !isEnd : !isReady()) plain();
    if (text.length <= (isEnd ? COLOUR_MAX : LIVE_MAX)) colour();
  }

  const element = h('div', { class: 'code', dir: 'ltr' },
    h('div', { class: 'code-head' }, label, copyButton('Copy the code', () => text)),
    h('pre', { tabindex: 0 }, code));
  show(given, isComplete);
  return { element, show };
}
