// Elements, made of names, attributes and children. Text is always text: no code here reads markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.setAttribute('class', value);
    else if (name === 'data') Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Returns an HTML element: `h('p', {class: 'note'}, 'text', child)`. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Returns the same for SVG. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Returns the element with that id, which the document has. */
export const $ = (id) => document.getElementById(id);

/** Writes `text` only if it differs, so that screen readers do not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Returns a value of the style sheet. */
export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Returns whether the user allows motion. */
export const mayMove = () => !matchMedia('(prefers-reduced-motion: reduce)').matches;

/** Returns a canvas at its size on the page, and its pen; `null` while it is hidden. */
export function pen(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const ctx = canvas.getContext('2d');
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return { ctx, width, height };
}
