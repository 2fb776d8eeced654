// Requests: which run, which wait and for what, the rates, and what each did in which step.

import { $, colour, h, pen, say } from './dom.js';
import { ownerColour, showFacts } from './memory.js';
import { duration, short, whole } from './numbers.js';
import { Plot } from './plot.js';

const REASONS = {
  not_planned_yet: 'the next step',
  max_num_seqs: 'a seat: as many run as may',
  token_budget: 'tokens: the step’s were spent',
  kv_cache: 'blocks of the KV cache',
  encoder_cache: 'its pictures and sounds to be encoded',
  preemption: 'a step without a preemption',
  recovery: 'streams that a crash has interrupted',
  paused: 'the operator: paused',
  prefill_interval: 'the next step with new prompts',
  suspects: 'others, who run alone after a failure',
  structured_output_grammar: 'its grammar',
  lora_adapter: 'its adapter',
  recovery: 'streams that a crash interrupted',
};
const KINDS = ['prefill', 'again', 'decode', 'preempted'];
const KIND_TEXTS = ['a part of the prompt', 'computed again', 'one token', 'preempted'];
/** Smallest number of steps shown. */
const MIN_STEPS = 60;
const MAX_STEPS = 400;
const MAX_ROWS = 24;

export class TrafficView {
  #plots = [
    new Plot('Throughput', 'tokens/s', [
      { name: 'computed', colour: 'a', of: (point) => (point.isFirst ? null : point.computed) },
      { name: 'output', colour: 'b', of: (point) => (point.isFirst ? null : point.output) },
    ], short),
    new Plot('Requests', '', [
      { name: 'running', colour: 'a', of: (point) => point.running },
      { name: 'waiting', colour: 'b', of: (point) => point.waiting },
    ], short),
    new Plot('Time to first token', 'ms', [
      { name: 'median', colour: 'a', of: (point) => point.ttft.p50_ms },
      { name: '99 %', colour: 'b', of: (point) => point.ttft.p99_ms },
    ], duration),
    new Plot('Between tokens', 'ms', [
      { name: 'median', colour: 'a', of: (point) => point.itl.p50_ms },
      { name: '99 %', colour: 'b', of: (point) => point.itl.p99_ms },
    ], duration),
  ];
  #rows = new Map();

  constructor() {
    $('plots').append(...this.#plots.map(({ element }) => element));
    $('steps-legend').append(...KINDS.map((kind, i) =>
      h('li', null, h('i', { class: `key step-${kind}` }), KIND_TEXTS[i])),
    h('li', null, h('i', { class: 'key epoch-line' }), 'a new epoch'));
  }

  /** Draws the current state. */
  draw(snapshot, point, history) {
    const { totals } = snapshot;
    showFacts($('traffic-facts'), [
      ['Open', whole(snapshot.open_requests), `${point.running} run, ${point.waiting} wait`],
      ['Output', `${short(point.output)}/s`, `${whole(totals.output_tokens)} tokens in all`],
      ['Steps', `${short(point.steps)}/s`, `${whole(totals.steps)} in all`],
      ['Preempted', whole(totals.preemptions), 'requests, since the start'],
      ['Ended', whole(totals.finished_requests), 'requests, since the start'],
    ]);
    for (const plot of this.#plots) plot.draw(history.points);
    this.#requests(snapshot);
    this.#timelines(snapshot);
  }

  #requests({ scheduler }) {
    const row = (one) => h('tr', { class: one.waits_for ? 'waits' : null },
      h('th', { scope: 'row' }, dot(one.id), String(one.id)),
      h('td', null, one.waits_for ? `waits for ${REASONS[one.waits_for] ?? one.waits_for}` : 'runs'),
      h('td', { class: 'num' }, whole(one.num_prompt_tokens)),
      h('td', { class: 'num' }, `${whole(one.num_output_tokens)} of ${whole(one.max_tokens)}`),
      h('td', { class: 'num' }, whole(one.num_computed_tokens)),
      h('td', { class: 'num' }, whole(one.num_blocks)),
      h('td', { class: 'num' }, duration(one.age_ms)));
    const names = ['Request', 'State', 'Prompt', 'Output', 'Computed', 'Blocks', 'Age'];
    const requests = scheduler?.requests ?? [];
    const unseen = scheduler ? scheduler.num_running + scheduler.num_waiting - requests.length : 0;
    const rest = unseen > 0 ? [h('tr', null, h('td', { colspan: 7, class: 'note' }, `and ${whole(unseen)} more`))] : [];
    const none = [h('tr', null, h('td', { colspan: 7, class: 'note' }, 'Nobody asks for anything, at present.'))];
    $('requests').replaceChildren(
      h('thead', null, h('tr', null, names.map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', null, requests.length ? [...requests.map(row), ...rest] : none));
  }

  #timelines({ timelines, epochs, scheduler }) {
    // Live requests first, then those that ended last.
    const shown = timelines.filter(({ segments }) => segments.length)
      .sort((a, b) => a.has_ended - b.has_ended || b.id - a.id).slice(0, MAX_ROWS)
      .sort((a, b) => a.id - b.id);
    const ends = shown.map(({ segments }) => end(segments.at(-1)));
    const last = Math.max(scheduler?.step ?? 0, ...ends);
    const begin = Math.min(...shown.map(({ segments }) => segments[0][1]));
    const from = Math.max(last - MAX_STEPS, Math.min(begin, last - MIN_STEPS));
    const wanted = new Set(shown.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (!wanted.has(id)) {
        row.element.remove();
        this.#rows.delete(id);
      }
    }
    for (const timeline of shown) this.#timeline(timeline, from, last, epochs);
    $('timelines').classList.toggle('none', !shown.length);
  }

  #timeline({ id, has_ended: hasEnded, segments }, from, last, epochs) {
    let row = this.#rows.get(id);
    if (!row) {
      const canvas = h('canvas', { role: 'img' });
      const state = h('span', { class: 'note' });
      const element = h('div', { class: 'timeline' }, h('span', { class: 'who' }, dot(id), String(id)), canvas, state);
      row = { element, canvas, state };
      this.#rows.set(id, row);
      $('timelines').append(element);
    }
    say(row.state, hasEnded ? 'ended' : '');
    const tokens = (kind) => segments.filter((one) => one[0] === kind).reduce((sum, one) => sum + one[2] * one[3], 0);
    const preempted = segments.filter(([kind]) => kind === 3).length;
    row.canvas.setAttribute('aria-label', `Request ${id}: ${tokens(0)} tokens of the prompt, ${tokens(1)} again, `
      + `${tokens(2)} decoded, preempted ${preempted} times`);
    const drawn = pen(row.canvas);
    if (!drawn) return;
    const { ctx, width, height } = drawn;
    const x = (step) => ((step - from) / Math.max(1, last + 1 - from)) * width;
    for (const segment of segments) {
      const [kind, first, , count] = segment;
      // The height of a prompt's chunk grows with its tokens.
      const high = kind === 2 ? 0.4 : kind === 3 ? 1 : 0.4 + 0.6 * Math.min(1, Math.log2(1 + count) / 9);
      const [left, right] = [x(first), x(end(segment))];
      ctx.fillStyle = colour(`step-${KINDS[kind]}`);
      ctx.fillRect(left, height * (1 - high), Math.max(1, right - left - 0.5), height * high);
    }
    ctx.fillStyle = colour('step-epoch');
    for (const [step] of epochs.slice(1)) ctx.fillRect(Math.round(x(step)), 0, 1, height);
  }
}

const end = ([, first, steps]) => first + steps;

function dot(id) {
  const mark = h('i', { class: 'dot', 'aria-hidden': 'true' });
  mark.style.background = ownerColour(id);
  return mark;
}
