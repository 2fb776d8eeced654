// Copies text. Browsers offer the clipboard only to pages with TLS or from this machine; elsewhere
// an older command does it.

import { h } from './dom.js';
import { icon } from './icons.js';

const SHOWN_MS = 1500;

function copyByCommand(text) {
  const box = h('textarea', { class: 'hidden', 'aria-hidden': 'true' });
  box.value = text;
  const before = document.activeElement;
  (before?.closest('dialog') ?? document.body).append(box);
  box.select();
  const isDone = document.execCommand('copy');
  box.remove();
  before?.focus();
  if (!isDone) throw new Error('the browser does not allow to copy');
}

/** Copies `text`. */
export async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return;
    } catch {
      // Without permission, the older command may still do it.
    }
  }
  copyByCommand(text);
}

/** Returns a button that copies what `read` returns, and says so. */
export function copyButton(label, read) {
  const button = h('button', { class: 'tool copy', type: 'button', 'aria-label': label, title: label }, icon('copy'));
  const say = (name, text) => {
    button.replaceChildren(icon(name));
    button.setAttribute('aria-label', text);
  };
  button.addEventListener('click', async () => {
    try {
      await copy(read());
      say('done', 'Copied');
    } catch (error) {
      say('problem', `Not copied: ${error.message}`);
    }
    setTimeout(() => say('copy', label), SHOWN_MS);
  });
  return button;
}
