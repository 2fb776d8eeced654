// The pictures on buttons, as paths in a square of 24.

import { svg } from './dom.js';

const PATHS = {
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 13l4 4L19 7',
  problem: 'M12 4v10M12 18v.5',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  again: 'M20 11a8 8 0 10-2.300 5.700M20 5v6h-6',
  goOn: 'M5 12h13M13 6l6 6-6 6',
  remove: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13',
  before: 'M15 5l-7 7 7 7',
  after: 'M9 5l7 7-7 7',
  add: 'M12 5v14M5 12h14',
  list: 'M4 6h16M4 12h16M4 18h16',
  save: 'M12 4v11M7 11l5 5 5-5M4 20h16',
  load: 'M12 16V5M7 9l5-5 5 5M4 20h16',
  attach: 'M20 11l-8.500 8.500a5 5 0 01-7-7L13 4a3.300 3.300 0 015 5l-8.500 8.500a1.700 1.700 0 01-2.500-2.500L14.500 7.500',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  sound: 'M4 10v4h4l5 4V6L8 10zM16 9a4 4 0 010 6M18.500 6.500a8 8 0 010 11',
  send: 'M12 20V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  sun: 'M12 8a4 4 0 100 8 4 4 0 100-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19',
  moon: 'M20 14.500A8.500 8.500 0 119.500 4a7 7 0 0010.500 10.500z',
  auto: 'M12 3a9 9 0 100 18 9 9 0 100-18M12 3v18M12 8h7.500M12 13h8.500M12 18h5',
};

/** Returns a picture, which screen readers skip. */
export const icon = (name) => svg('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' },
  svg('path', { d: PATHS[name] }));
