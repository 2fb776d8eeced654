// A message as a text that the user changes.

import { h } from './dom.js';

/** Makes a text box as high as its content, up to `most` pixels. */
export function grow(box, most = 320) {
  box.style.height = 'auto';
  box.style.height = `${Math.min(box.scrollHeight + 2, most)}px`;
}

/** Returns a form with `text`. `use` takes the new text, `close` ends it without. */
export function editor(text, label, use, close) {
  const box = h('textarea', { 'aria-label': 'Text of the message', dir: 'auto' });
  box.value = text;
  const form = h('form', { class: 'editor' }, box, h('div', { class: 'row' },
    h('button', { class: 'primary', type: 'submit' }, label),
    h('button', { class: 'quiet', type: 'button', onclick: close }, 'Cancel')));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (box.value.trim()) use(box.value);
  });
  box.addEventListener('input', () => grow(box));
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  requestAnimationFrame(() => {
    grow(box);
    box.focus();
  });
  return form;
}
