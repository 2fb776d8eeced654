// Markdown without a document: formulas, entities, addresses, and texts that grow.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decoded, divide, normalized, safeAddress, tokensOf } from '../../src/server/page/markdown.js';

const formulas = (text) => {
  const found = [];
  const walk = (tokens) => tokens?.forEach((token) => {
    if (token.type === 'math') found.push([token.tex, token.isDisplay]);
    walk(token.tokens);
    token.items?.forEach(({ tokens: more }) => walk(more));
  });
  walk(tokensOf(text));
  return found;
};

test('formulas are found in their four notations, and prices are none', () => {
  assert.deepEqual(formulas('so $x^2$, \\(y\\) and $$z$$'), [['x^2', false], ['y', false], ['z', true]]);
  assert.deepEqual(formulas('$$\na\n$$\ntext\n\\[\nb\n\\]\n'), [['a', true], ['b', true]]);
  assert.deepEqual(formulas('- a $x$\n- b\n\n  $$y$$'), [['x', false], ['y', true]]);
  assert.deepEqual(formulas('it costs $5 or $10, and US$ 5, $ 6 $'), []);
  assert.deepEqual(formulas('`$a$`\n\n```\n$b$\n```'), []);
});

test('only addresses of the web and of mail become links', () => {
  for (const address of ['https://a.example/b?c=1', 'http://a', 'mailto:a@b']) assert.equal(safeAddress(address), address);
  for (const address of ['javascript:alert(1)', 'JAVASCRIPT:alert(1)', 'java&#115;cript:alert(1)', 'data:text/html,x', '/page/main.js', '//a', 'https://a b', '']) {
    assert.equal(safeAddress(address), null, address);
  }
});

test('entities are decoded, and unknown ones stay', () => {
  assert.equal(decoded('a &lt;b&gt; &amp;amp; &#65;&#x42; &nope; &constructor; &#0; &#x110000;'), 'a <b> &amp; AB &nope; &constructor; &#0; &#x110000;');
});

/** Returns the tokens of a text that arrives in pieces, as the page reads it. */
function grown(text, step) {
  const all = [];
  let done = 0;
  for (let at = step; at < text.length + step; at += step) {
    const rest = text.slice(done, at);
    const { final, length, open } = divide(rest, tokensOf(rest));
    all.push(...final);
    done += length;
    if (at >= text.length) all.push(...open);
  }
  return all;
}

const SAMPLE = normalized([
  '# Title', '', 'A paragraph', 'of two lines.', '', '- one', '- two', '', '  still two', '- three', '', '> quote', '> more', '',
  '```js', 'const a = 1;', '', 'b();', '```', '', '| a | b |', '|---|---|', '| 1 | 2 |', '', '$$', 'x', '$$', '', '---', '', '1. a', '2. b', '', 'End',
].join('\r\n'));

test('a text that grows has the same blocks as the whole text', () => {
  const shape = (tokens) => tokens.filter(({ type }) => type !== 'space').map(({ type, raw }) => `${type}: ${raw.trim()}`);
  const whole = shape(tokensOf(SAMPLE));
  assert.ok(whole.length >= 10, whole);
  for (const step of [1, 2, 3, 7, 50]) assert.deepEqual(shape(grown(SAMPLE, step)), whole, `by ${step}`);
});

test('a finished block is final as soon as the next one begins', () => {
  const text = 'One.\n\nTwo.\n\nThr';
  const { final, open, length } = divide(text, tokensOf(text));
  assert.deepEqual(final.filter(({ type }) => type !== 'space').map(({ text: one }) => one), ['One.', 'Two.']);
  assert.equal(text.slice(length), 'Thr');
  assert.equal(open[0].text, 'Thr');
});

test('hostile texts end soon', () => {
  for (const text of ['['.repeat(20_000), '*a '.repeat(10_000), '$a '.repeat(10_000), '\\( '.repeat(10_000), '> '.repeat(5_000), '`'.repeat(20_000), '![['.repeat(8_000)]) {
    const began = performance.now();
    const tokens = tokensOf(text);
    const ms = performance.now() - began;
    assert.ok(tokens.length > 0);
    assert.ok(ms < 4_000, `${text.slice(0, 6)}: ${ms} ms`);
  }
});
