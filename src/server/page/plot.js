// A line over the last minute.

import { colour, h, pen, say } from './dom.js';
import { WINDOW_MS } from './rates.js';

const LEFT = 54;
const BOTTOM = 18;
const TOP = 8;

/** Returns a round number at or above `value`: one, two or five times a power of ten. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

export class Plot {
  /** `lines`: `{name, colour, of}`, where `of` returns the value of a point, or `null` for none. */
  constructor(title, unit, lines, format) {
    Object.assign(this, { title, unit, lines, format });
    this.canvas = h('canvas', { role: 'img' });
    this.now = lines.map((line) => h('b', { class: 'num' }));
    const key = (line, i) => h('span', null, h('i', { class: `key line-${line.colour}` }), line.name, ' ', this.now[i]);
    this.element = h('figure', { class: 'card plot' },
      h('figcaption', null, h('h2', null, title), h('div', { class: 'keys' }, lines.map(key))),
      this.canvas);
  }

  /** Draws the points of the last minute. */
  draw(points) {
    const values = this.lines.map(({ of }) =>
      points.map((point) => [point.at, of(point)]).filter(([, value]) => value !== null && value !== undefined));
    const told = values.map((line, i) => {
      const text = line.length ? this.format(line.at(-1)[1]) : '–';
      say(this.now[i], text);
      return `${this.lines[i].name} ${text}`;
    });
    this.canvas.setAttribute('aria-label', `${this.title} over the last minute; now: ${told.join(', ')}`);
    const drawn = pen(this.canvas);
    if (!drawn || !points.length) return;
    const { ctx, width, height } = drawn;
    const top = roundUp(Math.max(0, ...values.flat().map(([, value]) => value)));
    const now = points.at(-1).at;
    const x = (at) => LEFT + ((at - now + WINDOW_MS) / WINDOW_MS) * (width - LEFT - 4);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    this.#grid(ctx, width, height, top, y);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT, 0, width - LEFT, height);
    ctx.clip();
    values.forEach((line, i) => trace(ctx, line, x, y, colour(`line-${this.lines[i].colour}`), i === 0));
    ctx.restore();
  }

  #grid(ctx, width, height, top, y) {
    ctx.font = '11px system-ui, sans-serif';
    ctx.fillStyle = colour('faint');
    ctx.strokeStyle = colour('rule');
    ctx.lineWidth = 1;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    for (const value of [0, top / 2, top]) {
      ctx.fillText(this.format(value), LEFT - 6, y(value));
      ctx.beginPath();
      ctx.moveTo(LEFT, Math.round(y(value)) + 0.5);
      ctx.lineTo(width - 4, Math.round(y(value)) + 0.5);
      ctx.stroke();
    }
    ctx.textBaseline = 'alphabetic';
    ctx.textAlign = 'left';
    ctx.fillText('a minute ago', LEFT, height - 3);
    ctx.textAlign = 'right';
    ctx.fillText('now', width - 4, height - 3);
  }
}

function trace(ctx, line, x, y, stroke, isFilled) {
  if (!line.length) return;
  ctx.beginPath();
  line.forEach(([at, value], i) => (i ? ctx.lineTo(x(at), y(value)) : ctx.moveTo(x(at), y(value))));
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.75;
  ctx.lineJoin = 'round';
  ctx.stroke();
  if (!isFilled) return;
  ctx.lineTo(x(line.at(-1)[0]), y(0));
  ctx.lineTo(x(line[0][0]), y(0));
  ctx.closePath();
  ctx.globalAlpha = 0.13;
  ctx.fillStyle = stroke;
  ctx.fill();
  ctx.globalAlpha = 1;
}
