// The colours of code. The library is loaded when the first block needs it. It returns a tree of
// names and texts, and the elements are made here.

import { h } from './dom.js';

let library = null;
let isLoaded = false;

/** Names of languages that models write, and that the library knows by another. */
const ALIASES = { shellscript: 'bash', console: 'bash', jsonl: 'json', jsonc: 'json', svelte: 'xml', vue: 'xml' };

const load = () => {
  library ??= import('./vendor/highlight.js').then((module) => {
    isLoaded = true;
    return module.default;
  }, () => {
    // The server is gone: the next block tries again.
    library = null;
    return null;
  });
  return library;
};

const nodeOf = (node) => {
  if (typeof node === 'string') return node;
  const scope = node.scope?.split('.').map((part) => `hl-${part.replaceAll('_', '-')}`).join(' ');
  return h('span', scope ? { class: scope } : null, node.children.map(nodeOf));
};

/** Returns whether colours come at once. */
export const isReady = () => isLoaded;

/** Returns the nodes of `text`, or `null` if the language is unknown. */
export async function highlighted(text, language) {
  const name = ALIASES[language.toLowerCase()] ?? language;
  if (!name) return null;
  const hljs = await load();
  if (!hljs?.getLanguage(name)) return null;
  // The tree is what the library's own HTML is made of.
  const { _emitter: emitter } = hljs.highlight(text, { language: name, ignoreIllegals: true });
  return emitter.root.children.map(nodeOf);
}
