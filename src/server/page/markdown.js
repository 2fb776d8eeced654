// A small part of Markdown, as elements. Other syntax is shown as it was written. No text of a
// model ever becomes markup.

import { h } from './dom.js';

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s{0,3}>\s?/;
const ROW = /^\s*\|.*\|\s*$/;
const DIVIDER = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;
/** Code, bold, italic, struck, links, bare addresses: the first match counts. */
const INLINE = new RegExp([
  '(`+)(?<code>.+?)\\1(?!`)',
  '\\*\\*(?<bold>\\S(?:.*?\\S)?)\\*\\*',
  '(?<![\\w*])\\*(?<italic>[^\\s*](?:[^*]*[^\\s*])?)\\*(?!\\w)',
  '(?<!\\w)_(?<slanted>[^\\s_](?:[^_]*[^\\s_])?)_(?!\\w)',
  '~~(?<struck>\\S(?:.*?\\S)?)~~',
  '\\[(?<label>[^\\]]+)\\]\\((?<link>https?://[^\\s)]+)\\)',
  '(?<url>https?://[^\\s<>()]+[^\\s<>().,:;!?])',
].join('|'), 'gs');
/** Deepest nesting of lists and quotes. */
const MAX_DEPTH = 8;

const link = (href, ...label) => h('a', { href, rel: 'noopener noreferrer', target: '_blank' }, ...label);

/** Returns text within a paragraph, as nodes. */
function inline(text, depth = 0) {
  const nodes = [];
  let end = 0;
  if (depth > MAX_DEPTH) return [text];
  for (const match of text.matchAll(INLINE)) {
    const { code, bold, italic, slanted, struck, label, link: to, url } = match.groups;
    if (match.index > end) nodes.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (code !== undefined) nodes.push(h('code', null, code.trim() || code));
    else if (bold !== undefined) nodes.push(h('strong', null, inline(bold, depth + 1)));
    else if (struck !== undefined) nodes.push(h('s', null, inline(struck, depth + 1)));
    else if (to !== undefined) nodes.push(link(to, label));
    else if (url !== undefined) nodes.push(link(url, url));
    else nodes.push(h('em', null, inline(italic ?? slanted, depth + 1)));
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

/** Returns inline nodes, with a line break where the text has one. */
const lines = (text) =>
  text.split('\n').flatMap((line, i) => (i ? [h('br'), ...inline(line)] : inline(line)));

class Reader {
  constructor(text, depth) {
    this.lines = text.split('\n');
    this.at = 0;
    this.depth = depth;
  }

  get line() {
    return this.lines[this.at];
  }

  /** Takes lines as long as `fits` accepts them. */
  while(fits) {
    const from = this.at;
    while (this.at < this.lines.length && fits(this.line)) this.at += 1;
    return this.lines.slice(from, this.at);
  }

  fence() {
    const [, mark, language] = this.line.match(FENCE);
    this.at += 1;
    const body = this.while((line) => !line.trim().startsWith(mark));
    this.at += 1;
    return h('pre', language ? { data: { language } } : null, h('code', null, body.join('\n')));
  }

  quote() {
    const body = this.while((line) => QUOTE.test(line)).map((line) => line.replace(QUOTE, ''));
    return h('blockquote', null, blocks(body.join('\n'), this.depth + 1));
  }

  list() {
    const [, indent, bullet, number] = this.line.match(ITEM);
    const items = [];
    while (this.at < this.lines.length) {
      const match = this.line.match(ITEM);
      if (!match || match[1].length !== indent.length || !match[2] !== !bullet) break;
      this.at += 1;
      const more = this.while((line) => line.trim() && leading(line) > indent.length);
      const deeper = Math.min(...more.map(leading));
      const body = [match[4], ...more.map((line) => line.slice(deeper))].join('\n');
      items.push(h('li', null, more.length ? blocks(body, this.depth + 1) : inline(match[4])));
      // One empty line between two items does not end the list.
      if (this.line === '' && ITEM.test(this.lines[this.at + 1] ?? '')) this.at += 1;
    }
    return bullet ? h('ul', null, items) : h('ol', { start: number }, items);
  }

  table() {
    const rows = this.while((line) => ROW.test(line));
    const cells = (row) => row.trim().slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim());
    const row = (name, text) => h('tr', null, cells(text).map((cell) => h(name, null, inline(cell))));
    const body = rows.slice(2).map((text) => row('td', text));
    return h('div', { class: 'scroll' },
      h('table', null, h('thead', null, row('th', rows[0])), h('tbody', null, body)));
  }

  paragraph() {
    const first = this.at;
    const body = this.while((line) => line.trim() && (this.at === first || !begins(line)));
    return h('p', null, lines(body.join('\n')));
  }

  isTable() {
    return ROW.test(this.line) && DIVIDER.test(this.lines[this.at + 1] ?? '');
  }
}

const leading = (line) => line.length - line.trimStart().length;
const begins = (line) =>
  FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || QUOTE.test(line) || RULE.test(line);

function blocks(text, depth) {
  if (depth > MAX_DEPTH) return [h('p', null, text)];
  const reader = new Reader(text, depth);
  const found = [];
  while (reader.at < reader.lines.length) {
    const { line } = reader;
    const heading = line.match(HEADING);
    if (!line.trim()) reader.at += 1;
    else if (FENCE.test(line)) found.push(reader.fence());
    else if (heading) {
      // The page has its own first two levels.
      found.push(h(`h${Math.min(6, heading[1].length + 2)}`, null, inline(heading[2])));
      reader.at += 1;
    } else if (RULE.test(line)) {
      found.push(h('hr'));
      reader.at += 1;
    } else if (QUOTE.test(line)) found.push(reader.quote());
    else if (ITEM.test(line)) found.push(reader.list());
    else if (reader.isTable()) found.push(reader.table());
    else found.push(reader.paragraph());
  }
  return found;
}

/** Returns the elements for `text`. */
export const markdown = (text) => blocks(text.replaceAll('\r\n', '\n').replaceAll('\t', '    '), 0);
