// The KV cache, block by block, in the colour of the request that holds it.

import { $, colour, h, mayMove, pen, say } from './dom.js';
import { Glow } from './glow.js';
import { duration, short, whole } from './numbers.js';
import { Plot } from './plot.js';
import { usage } from './rates.js';
import { onColourChange } from './theme.js';
import { startTrial } from './trial.js';

const STATES = ['free', 'cached', 'kept', 'held'];
/** The server samples cells that stand for more blocks. */
const SAMPLES_PER_CELL = 16;
const TOLD = {
  free: 'free, nothing in it can be used again',
  cached: 'free, and its content can be hit',
  kept: 'kept for the request that was filling it',
  held: 'held',
};
/** The number of colours in the style sheet. */
const NUM_COLOURS = 8;

export const ownerColour = (id) => colour(`owner-${id % NUM_COLOURS}`);

export class MemoryView {
  #cells = [];
  #at = 0;
  #grid = { columns: 1, size: 1 };
  #cache = null;
  #glow = new Glow();
  #fading = 0;
  #model = null;
  #plot = new Plot('Blocks over the last minute', '', [
    { name: 'held', colour: 'b', of: (point) => point.held },
    { name: 'free, can be hit', colour: 'a', of: (point) => point.cached },
  ], short);

  constructor() {
    $('memory-plot').append(this.#plot.element);
    startTrial(() => this.#model);
    const canvas = $('blocks');
    canvas.addEventListener('keydown', (event) => this.#steer(event));
    canvas.addEventListener('focus', () => this.#tell(this.#at));
    canvas.addEventListener('blur', () => { this.#paint(); say($('block-told'), ''); });
    canvas.addEventListener('mousemove', (event) => {
      const { columns, size } = this.#grid;
      const [x, y] = [Math.floor(event.offsetX / size), Math.floor(event.offsetY / size)];
      if (x < columns) this.#tell(y * columns + x);
    });
    canvas.addEventListener('mouseleave', () => say($('block-told'), ''));
    onColourChange(() => this.#cache && this.#paint());
    $('memory-legend').append(...[
      ['held', 'held, a colour a request'], ['shared', 'held by several'], ['kept', 'kept for its request'],
      ['cached', 'free, can be hit'], ['free', 'free'], ['glow', 'changed just now'],
    ].map(([name, text]) => h('li', null, h('i', { class: `key ${name}` }), text)));
  }

  /** Draws the current state. */
  draw(snapshot, point, history) {
    const cache = snapshot.kv_cache;
    this.#model = snapshot.model;
    this.#facts(snapshot, point);
    this.#plot.draw(history.points);
    if (!cache) {
      say($('memory-note'), 'Nothing was planned yet: every block is free.');
      return;
    }
    this.#cache = cache;
    const perCell = cache.blocks_per_cell;
    const age = cache.age_ms > 1000 ? ` The manager last answered ${duration(cache.age_ms)} ago.` : '';
    const cells = perCell > 1 ? ` A cell stands for ${perCell} of them, and shows what most are.` : '';
    say($('memory-note'),
      `${whole(cache.num_blocks)} blocks of ${snapshot.model.block_size} tokens.${cells}${age}`);
    this.#cells = cache.runs.flatMap(([blocks, state, request, holders]) =>
      Array(Math.ceil(blocks / perCell)).fill({ state: STATES[state], request, holders }));
    this.#glow.take(this.#cells, performance.now());
    const held = cache.num_blocks - cache.num_free;
    $('blocks').setAttribute('aria-label', `${whole(cache.num_blocks)} blocks: ${whole(held)} held, `
      + `${whole(cache.num_cached)} free that can be hit, ${whole(cache.num_free - cache.num_cached)} other free ones`);
    this.#paint();
    this.#fade();
    this.#owners(snapshot);
  }

  #facts(snapshot, point) {
    const { totals, kv_cache: cache } = snapshot;
    const { prefix_cache_queries: asked, prefix_cache_hits: hit } = totals;
    const about = cache?.blocks_per_cell > SAMPLES_PER_CELL ? 'about ' : '';
    const facts = [
      ['In use', `${(usage(cache) * 100).toFixed(1)} %`, cache ? `${whole(cache.num_blocks - cache.num_free)} blocks` : ''],
      ['Can be hit', cache ? about + whole(cache.num_cached) : '0', 'free blocks with content'],
      ['Shared', cache ? about + whole(cache.num_shared) : '0', 'blocks of several requests'],
      ['Hit rate', asked ? `${((hit / asked) * 100).toFixed(1)} %` : '–', `${whole(hit)} of ${whole(asked)} prompt tokens`],
      ['Computed again', whole(totals.recomputed_tokens), 'tokens, after preemptions and new epochs'],
    ];
    showFacts($('memory-facts'), [...facts, ...encoderFacts(snapshot.encoder_cache)], point);
  }

  /** Paints as long as a change is visible. Without motion, each snapshot paints once. */
  #fade() {
    if (this.#fading || !mayMove()) return;
    this.#fading = requestAnimationFrame((now) => {
      this.#fading = 0;
      if (document.hidden || !this.#glow.isOn(now)) return;
      this.#paint();
      this.#fade();
    });
  }

  #paint() {
    const canvas = $('blocks');
    const count = this.#cells.length;
    const width = canvas.clientWidth;
    if (!count || !width) return;
    // The largest cells that a picture of moderate height allows.
    const size = Math.max(4, Math.min(22, Math.floor(Math.sqrt((width * 360) / count))));
    const columns = Math.max(1, Math.floor(width / size));
    this.#grid = { columns, size };
    canvas.style.height = `${Math.ceil(count / columns) * size}px`;
    const drawn = pen(canvas);
    if (!drawn) return;
    const colours = new Map(STATES.map((state) => [state, colour(`block-${state}`)]));
    const owners = new Map();
    const gap = size > 7 ? 1.5 : 0.5;
    const now = performance.now();
    const light = colour('glow');
    this.#cells.forEach(({ state, request, holders }, i) => {
      const [x, y] = [(i % columns) * size, Math.floor(i / columns) * size];
      if (state === 'held' && !owners.has(request)) owners.set(request, ownerColour(request));
      drawn.ctx.fillStyle = state === 'held' ? owners.get(request) : colours.get(state);
      drawn.ctx.fillRect(x, y, size - gap, size - gap);
      if (holders > 1) stripe(drawn.ctx, x, y, size - gap);
      const glow = this.#glow.of(i, now);
      if (glow > 0) shine(drawn.ctx, x, y, size - gap, glow, light);
    });
    if (document.activeElement === canvas) this.#frame(drawn.ctx);
  }

  #frame(ctx) {
    const { columns, size } = this.#grid;
    ctx.strokeStyle = colour('ink');
    ctx.lineWidth = 2;
    ctx.strokeRect((this.#at % columns) * size, Math.floor(this.#at / columns) * size, size, size);
  }

  #tell(at) {
    const cell = this.#cells[at];
    if (!cell) return;
    const perCell = this.#cache.blocks_per_cell;
    const name = perCell > 1 ? `Blocks ${at * perCell + 1} to ${(at + 1) * perCell}` : `Block ${at + 1}`;
    const others = cell.holders > 1 ? ` and ${cell.holders - 1} more` : '';
    const who = cell.state === 'held' || cell.state === 'kept' ? `: request ${cell.request}${others}` : '';
    say($('block-told'), `${name}: ${TOLD[cell.state]}${who}`);
  }

  #steer(event) {
    const { columns } = this.#grid;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step) return;
    event.preventDefault();
    this.#at = Math.max(0, Math.min(this.#cells.length - 1, this.#at + step));
    this.#paint();
    this.#tell(this.#at);
  }

  #owners(snapshot) {
    const requests = (snapshot.scheduler?.requests ?? []).filter(({ num_blocks: held }) => held > 0);
    const most = Math.max(1, ...requests.map(({ num_blocks: held }) => held));
    const bar = ({ id, num_blocks: held, num_computed_tokens: tokens }) => {
      const fill = h('i');
      fill.style.width = `${(held / most) * 100}%`;
      fill.style.background = ownerColour(id);
      return h('li', null, h('span', null, `Request ${id}`), h('span', { class: 'bar' }, fill),
        h('span', { class: 'num' }, `${whole(held)} blocks, ${whole(tokens)} tokens`));
    };
    const rows = requests.length ? requests.map(bar) : [h('li', { class: 'note' }, 'Nobody, at present.')];
    $('owners').replaceChildren(...rows);
  }
}

/** What the encoder of images and sounds holds; nothing for a model of text alone. */
export function encoderFacts(cache) {
  if (!cache) return [];
  const { cache_size: room, num_free: free, num_freeable: freeable } = cache;
  const late = cache.age_ms > 1000 ? `, ${duration(cache.age_ms)} ago` : '';
  const asked = cache.num_hits + cache.num_encoded;
  return [
    ['Encoder cache', `${(((room - free) / Math.max(1, room)) * 100).toFixed(1)} %`,
      `${whole(room - free)} of ${whole(room)} embeddings, ${whole(freeable - free)} unused${late}`],
    ['Images and sounds', whole(cache.num_ready), `in memory, ${whole(cache.num_encoding)} being encoded`],
    ['Encoded', whole(cache.num_encoded - cache.num_received),
      `and ${whole(cache.num_received)} that came as embeddings`],
    ['Encoder hit rate', asked ? `${((cache.num_hits / asked) * 100).toFixed(1)} %` : '–',
      `${whole(cache.num_hits)} of ${whole(asked)} needs`],
  ];
}

function stripe(ctx, x, y, size) {
  ctx.fillStyle = colour('shared');
  ctx.beginPath();
  ctx.moveTo(x, y + size);
  ctx.lineTo(x, y + size * 0.45);
  ctx.lineTo(x + size * 0.55, y + size);
  ctx.fill();
}

/** Frames a cell that changed, the brighter the later it was. */
function shine(ctx, x, y, size, strength, light) {
  ctx.globalAlpha = strength;
  ctx.strokeStyle = light;
  ctx.lineWidth = Math.max(1, size * 0.16);
  ctx.strokeRect(x + ctx.lineWidth / 2, y + ctx.lineWidth / 2, size - ctx.lineWidth, size - ctx.lineWidth);
  ctx.globalAlpha = 1;
}

/** Shows figures with a name and a remark. */
export function showFacts(box, facts) {
  if (box.childElementCount !== facts.length) {
    box.replaceChildren(...facts.map(([name]) => h('div', { class: 'fact' },
      h('h2', null, name), h('p', { class: 'figure num' }), h('p', { class: 'note num' }))));
  }
  facts.forEach(([, figure, remark], i) => {
    const [, value, note] = box.children[i].children;
    say(value, figure);
    say(note, remark);
  });
}
