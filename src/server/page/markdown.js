// Markdown as a tree of tokens, and the parts of it that need care: formulas, entities, and
// addresses that a link may have. Pure: `prose.js` makes elements of the tokens.

import { Marked } from './vendor/marked.js';

/** Longest formula, in characters. A dollar sign far away is no end of one. */
const MATH_MAX = 4000;

/** `$$ … $$` and `\[ … \]` that begin a line. */
const MATH_BLOCK = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
/** `$$…$$`, `\[…\]` and `\(…\)` within a line, and `$…$` where both signs touch the formula. */
const MATH_INLINE = new RegExp([
  '^(?:\\$\\$([^$]+?)\\$\\$',
  '\\\\\\[([\\s\\S]+?)\\\\\\]',
  '\\\\\\(([\\s\\S]+?)\\\\\\)',
  '\\$((?:\\\\.|[^\\s$\\\\])(?:(?:\\\\.|[^$\\\\\\n])*?(?:\\\\.|[^\\s$\\\\]))?)\\$(?!\\d))',
].join('|'));

/** Words between two prices: no formula has them without a sign of one. */
const isSentence = (text) => /[a-z]{3,}/i.test(text) && !/[\\^_{}=<>]/.test(text);

const firstOf = (found) => found.slice(1).find((text) => text !== undefined);

const mathBlock = {
  name: 'mathBlock',
  level: 'block',
  start: (text) => text.match(/^ {0,3}(?:\$\$|\\\[)/m)?.index,
  tokenizer(text) {
    const found = text.slice(0, MATH_MAX).match(MATH_BLOCK);
    return found ? { type: 'math', raw: found[0], tex: firstOf(found).trim(), isDisplay: true } : undefined;
  },
};

const mathInline = {
  name: 'mathInline',
  level: 'inline',
  start: (text) => text.match(/\$|\\[[(]/)?.index,
  tokenizer(text) {
    const found = text.slice(0, MATH_MAX).match(MATH_INLINE);
    if (!found || (found[4] && isSentence(found[4]))) return undefined;
    return { type: 'math', raw: found[0], tex: firstOf(found).trim(), isDisplay: /^(?:\$\$|\\\[)/.test(found[0]) };
  },
};

const marked = new Marked({ gfm: true, breaks: true });
marked.use({ extensions: [mathBlock, mathInline] });

/** Returns text whose lines end in one way, which the tokens repeat. */
export const normalized = (text) => text.replace(/\r\n?/g, '\n');

/** Returns the tokens of normalized text. */
export function tokensOf(text) {
  try {
    return marked.lexer(text);
  } catch {
    // Thousands of nested quotes are too deep for the parser. They are shown as they were written.
    return [{ type: 'html', raw: text }];
  }
}

/**
 * Divides the tokens of a text that grows: those that are final, and those that more text may
 * change. `length` is the number of characters of the final ones.
 */
export function divide(text, tokens) {
  let last = tokens.length - 1;
  while (last > 0 && tokens[last].type === 'space') last -= 1;
  const final = tokens.slice(0, Math.max(0, last));
  const raw = final.map((token) => token.raw).join('');
  // The place in the text is known only as long as the tokens repeat it.
  if (!text.startsWith(raw)) return { final: [], open: tokens, length: 0 };
  return { final, open: tokens.slice(final.length), length: raw.length };
}

const ENTITIES = {
  amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', hellip: '…',
  ndash: '–', mdash: '—', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', times: '×', deg: '°',
  middot: '·', bull: '•', rarr: '→', larr: '←', le: '≤', ge: '≥', ne: '≠', euro: '€',
};

/** Returns text with its entities replaced. Unknown ones stay as they are. */
export const decoded = (text) => text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,8}));/gi, (all, digits, hex, name) => {
  if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : all;
  const code = digits ? Number(digits) : Number.parseInt(hex, 16);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
});

/** Returns the address if a link may lead there, or `null`. */
export function safeAddress(address) {
  const text = decoded(address).trim();
  return /^(?:https?:\/\/|mailto:)[^\s]+$/i.test(text) ? text : null;
}
