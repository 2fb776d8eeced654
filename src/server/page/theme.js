// Light, dark, or as the system has it. The dark colours are a style sheet of their own, and the
// choice decides when it applies.

import { $ } from './dom.js';
import { icon } from './icons.js';
import { kept } from './kept.js';

const KEY = 'playhouse-theme';
const SYSTEM = '(prefers-color-scheme: dark)';
const THEMES = {
  system: { media: SYSTEM, icon: 'auto', label: 'Colours: as the system' },
  light: { media: 'not all', icon: 'sun', label: 'Colours: light' },
  dark: { media: 'all', icon: 'moon', label: 'Colours: dark' },
};

const listeners = new Set();
let theme = 'system';

/** Calls back when the colours of the page change. */
export function onColourChange(call) {
  listeners.add(call);
}

const tell = () => requestAnimationFrame(() => listeners.forEach((call) => call()));

function apply(name) {
  theme = name;
  const { media, icon: picture, label } = THEMES[name];
  $('dark').media = media;
  $('theme').replaceChildren(icon(picture));
  $('theme').setAttribute('aria-label', label);
  $('theme').title = label;
  tell();
}

/** Makes the switch work, and applies the last choice. */
export function startTheme() {
  const last = kept.get(KEY);
  apply(Object.hasOwn(THEMES, last ?? '') ? last : 'system');
  matchMedia(SYSTEM).addEventListener('change', tell);
  $('theme').addEventListener('click', () => {
    const names = Object.keys(THEMES);
    apply(names[(names.indexOf(theme) + 1) % names.length]);
    kept.set(KEY, theme);
  });
}
