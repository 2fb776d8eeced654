// A question of the page to its user.

import { $ } from './dom.js';

/** Asks whether to do what cannot be undone. Returns the answer. */
export function confirmed(title, text, button) {
  return new Promise((resolve) => {
    const dialog = $('confirm');
    $('confirm-title').textContent = title;
    $('confirm-text').textContent = text;
    $('confirm-yes').textContent = button;
    dialog.returnValue = 'no';
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
    dialog.showModal();
  });
}
