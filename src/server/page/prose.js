// A text with Markdown as elements. Text of a model never becomes markup: each token becomes an
// element by its name. A text that grows keeps its finished blocks: only the last one is drawn
// again. Text in Arabic or Hebrew runs from the right, block by block.

import { codeBlock } from './code.js';
import { h } from './dom.js';
import { formula } from './formula.js';
import { decoded, divide, normalized, safeAddress, tokensOf } from './markdown.js';

/** Deepest nesting of lists, quotes and emphasis. */
const DEPTH_MAX = 24;

/** The first letter decides where a block begins. */
const AUTO = { dir: 'auto' };

const link = (href, ...label) => h('a', { href, rel: 'noopener noreferrer', target: '_blank' }, ...label);

const INLINE = {
  text: (token, depth) => (token.tokens ? inline(token.tokens, depth) : [decoded(token.text)]),
  escape: (token) => [token.text],
  strong: (token, depth) => [h('strong', null, inline(token.tokens, depth))],
  em: (token, depth) => [h('em', null, inline(token.tokens, depth))],
  del: (token, depth) => [h('s', null, inline(token.tokens, depth))],
  codespan: (token) => [h('code', null, token.text)],
  br: () => [h('br')],
  math: (token) => [formula(token.tex, token.isDisplay)],
  checkbox: (token) => [h('input', {
    type: 'checkbox', checked: token.checked, disabled: true, 'aria-label': token.checked ? 'done' : 'to do',
  }), ' '],
  link: (token, depth) => {
    const address = safeAddress(token.href);
    return address ? [link(address, inline(token.tokens, depth))] : [decoded(token.raw)];
  },
  // A picture from elsewhere would tell its server who reads the answer: it stays a link.
  image: (token) => {
    const address = safeAddress(token.href);
    return address ? [link(address, token.text || address)] : [token.raw];
  },
  html: (token) => [/^<br\s*\/?>$/i.test(token.raw.trim()) ? h('br') : token.raw],
};

function inline(tokens, depth) {
  if (depth > DEPTH_MAX) return tokens.map(({ raw }) => raw);
  return tokens.flatMap((token) => INLINE[token.type]?.(token, depth + 1) ?? [token.raw]);
}

function cell(name, { tokens, align }, depth) {
  return h(name, { class: align ? `to-${align}` : null }, inline(tokens, depth));
}

function item({ tokens, task, loose }, depth) {
  const content = tokens.flatMap((token) => {
    const isText = token.type === 'text' || (token.type === 'paragraph' && !loose);
    return isText ? inline(token.tokens ?? [token], depth) : block(token, depth);
  });
  return h('li', { class: task ? 'task' : null }, content);
}

const BLOCK = {
  space: () => [],
  def: () => [],
  hr: () => [h('hr')],
  // The page has its own first two levels.
  heading: (token, depth) => [h(`h${Math.min(6, token.depth + 2)}`, AUTO, inline(token.tokens, depth))],
  paragraph: (token, depth) => [h('p', AUTO, inline(token.tokens, depth))],
  text: (token, depth) => [h('p', AUTO, inline(token.tokens ?? [token], depth))],
  html: (token) => [h('p', { class: 'plain', ...AUTO }, token.raw.trimEnd())],
  math: (token) => [h('p', { class: 'scroll' }, formula(token.tex, true))],
  code: (token) => [codeBlock(token.text, token.lang).element],
  blockquote: (token, depth) => [h('blockquote', null, blocks(token.tokens, depth))],
  list: (token, depth) => [h(token.ordered ? 'ol' : 'ul', { ...AUTO, start: token.ordered ? token.start : null },
    token.items.map((one) => item(one, depth)))],
  table: (token, depth) => [h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table' }, h('table', AUTO,
    h('thead', null, h('tr', null, token.header.map((one) => cell('th', one, depth)))),
    h('tbody', null, token.rows.map((row) => h('tr', null, row.map((one) => cell('td', one, depth)))))))],
};

function block(token, depth) {
  if (depth > DEPTH_MAX) return [token.raw];
  return BLOCK[token.type]?.(token, depth + 1) ?? inline([token], depth);
}

const blocks = (tokens, depth) => tokens.flatMap((token) => block(token, depth));

/** A text that grows. */
export class Prose {
  element = h('div', { class: 'prose' });
  /** Number of characters whose elements are final. */
  #done = 0;
  #text = '';
  #isEnd = false;
  /** Elements of the text that may change. */
  #open = [];
  /** The code block that grows. */
  #code = null;

  /** Shows `text`, which begins with the text before. Another text begins anew. */
  show(given, isEnd = false) {
    const text = normalized(given);
    if (text === this.#text && isEnd === this.#isEnd) return;
    if (!text.startsWith(this.#text)) this.#reset();
    this.#text = text;
    this.#isEnd = isEnd;
    const rest = text.slice(this.#done);
    const { final, open, length } = divide(rest, tokensOf(rest));
    const grows = open[0]?.type === 'code' ? open[0] : null;
    if (this.#code && grows && !final.length) {
      this.#code.show(grows.text, isEnd, grows.lang);
      return;
    }
    // The block that grew is final now, and its element can stay.
    const kept = this.#code && final[0]?.type === 'code' ? this.#code : null;
    kept?.show(final[0].text, true, final[0].lang);
    for (const element of this.#open) if (element !== kept?.element) element.remove();
    this.#add(blocks(kept ? final.slice(1) : final, 0));
    this.#done += length;
    this.#code = grows ? codeBlock(grows.text, grows.lang, isEnd) : null;
    this.#open = this.#add(this.#code ? [this.#code.element] : blocks(open, 0));
  }

  #add(nodes) {
    const elements = nodes.map((node) => (typeof node === 'string' ? h('p', { class: 'plain', ...AUTO }, node) : node));
    this.element.append(...elements);
    return elements;
  }

  #reset() {
    this.element.replaceChildren();
    this.#done = 0;
    this.#open = [];
    this.#code = null;
  }
}
