// A formula as MathML, which browsers draw themselves. The library is loaded when the first formula
// needs it. Until then, and where a formula is invalid, its source is shown.

import { h } from './dom.js';

/** Bounds on what one formula may cost: macros replaced, and the size of spaces in em. */
const LIMITS = { maxExpand: 500, maxSize: [20, 20] };

let library = null;

const load = () => {
  library ??= import('./vendor/temml.js').then((module) => module.default);
  return library;
};

/** Returns the element of a formula. */
export function formula(tex, isDisplay) {
  const element = h('span', { class: isDisplay ? 'formula display' : 'formula', dir: 'ltr' }, h('code', null, tex));
  load().then((temml) => {
    const drawn = document.createElement('span');
    try {
      // Commands that could load or link something are not trusted.
      temml.render(tex, drawn, { displayMode: isDisplay, throwOnError: true, trust: false, ...LIMITS });
    } catch {
      element.classList.add('invalid');
      return;
    }
    element.replaceChildren(...drawn.childNodes);
  }, () => {
    // The server is gone: the source stays, and the next formula tries again.
    library = null;
  });
  return element;
}
