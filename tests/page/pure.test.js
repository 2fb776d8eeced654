// The page's computations without a document: rates, news, the plan of the house.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { queuesOf, seenFrom } from '../../src/server/page/engines.js';
import { GLOW_MS, Glow } from '../../src/server/page/glow.js';
import { holdingsOf } from '../../src/server/page/holds.js';
import { planOf, waysOf, waysOut } from '../../src/server/page/plan.js';
import { roundUp } from '../../src/server/page/plot.js';
import { History, WINDOW_MS, news, usage } from '../../src/server/page/rates.js';
import { scoreOf, textsOf } from '../../src/server/page/search.js';

const ACTORS = [
  ['root', 0], ['core', 0], ['egress', 0], ['ingress', 0], ['ledger', 0], ['kv_cache', 0],
  ['structured_output', 0], ['encoder_cache', 0], ['scheduler', 0], ['worker', 0], ['encoder_worker', 0], ['detokenizer', 0], ['detokenizer', 1],
  ['streamer', 0], ['streamer', 1], ['input', 0], ['input', 1],
].map(([role, index]) => ({ role, index, state: 'alive', restarts: 0 }));

const snapshot = (at, more = {}) => ({
  at_ms: at,
  epoch: 1,
  health: 'ready',
  actors: ACTORS,
  totals: { output_tokens: at, scheduled_tokens: 2 * at, steps: at / 10, preemptions: 0 },
  edges: [{ edge: 'scheduler->worker', messages: at / 5 }],
  engines: [{ scheduler: { num_running: 1, num_waiting: 2 } }],
  time_to_first_token: {},
  inter_token_latency: {},
  ...more,
});

test('rates are of about the last second', () => {
  const history = new History();
  assert.equal(history.push(snapshot(1000)).output, 0, 'one snapshot has no rate');
  for (let at = 1250; at <= 3000; at += 250) history.push(snapshot(at));
  const point = history.push(snapshot(3250));
  assert.equal(Math.round(point.output), 1000);
  assert.equal(Math.round(point.computed), 2000);
  assert.equal(Math.round(point.edges.get('scheduler->worker')), 200);
  assert.deepEqual([point.running, point.waiting], [1, 2]);
});

test('points older than the plots are forgotten, and another engine begins anew', () => {
  const history = new History();
  for (let at = 0; at < 3 * WINDOW_MS; at += 1000) history.push(snapshot(at));
  assert.ok(history.points.length <= WINDOW_MS / 1000 + 2);
  const point = history.push(snapshot(50));
  assert.equal(history.points.length, 1);
  assert.equal(point.output, 0);
});

test('the memory of another engine is forgotten, and the rates stay', () => {
  const history = new History();
  const cached = (at) => ({ ...snapshot(at), kv_cache: { num_blocks: 8, num_free: 6, num_cached: 1 } });
  [1000, 2000, 3000].forEach((at) => history.push(cached(at)));
  assert.equal(history.points.at(-1).held, 2);
  history.forgetMemory();
  assert.deepEqual(history.points.map(({ held }) => held), [null, null, null]);
  assert.equal(Math.round(history.points.at(-1).output), 1000);
});

test('news are the differences between snapshots', () => {
  const before = snapshot(1000);
  assert.deepEqual(news(null, before), []);
  assert.deepEqual(news(before, snapshot(1250)), []);
  const actors = ACTORS.map((actor) => ({
    ...actor,
    restarts: actor.role === 'worker' ? 2 : 0,
    state: actor.role === 'streamer' && actor.index === 1 ? 'dead' : 'alive',
  }));
  const now = snapshot(1250, { actors, epoch: 3, health: 'recovering', totals: { preemptions: 1 } });
  assert.equal(news(before, now)[1].text, 'Streamer 2 died');
  assert.deepEqual(news(before, now).map(({ kind }) => kind), ['restart', 'death', 'epoch', 'preemption', 'health']);
  assert.deepEqual(news(now, before), [], 'another engine');
});

test('an unknown cache is not in use', () => {
  assert.equal(usage(null), 0);
  assert.equal(usage({ num_blocks: 8, num_free: 6 }), 0.25);
});

/** Asserts that every room is within the view, and that no rooms overlap. */
function isHabitable({ rooms, view: [left, top, width, height] }) {
  for (const [id, a] of rooms) {
    assert.ok(a.w > 100 && a.h > 25, `${id} is ${a.w} by ${a.h}`);
    assert.ok(a.x >= left && a.y >= top && a.x + a.w <= left + width && a.y + a.h <= top + height, id);
    for (const [other, b] of rooms) {
      const apart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
      assert.ok(id === other || apart, `${id} and ${other}`);
    }
  }
}

test('every actor has a room that no other overlaps', () => {
  for (const isNarrow of [false, true]) {
    const plan = planOf(ACTORS, isNarrow);
    assert.deepEqual([...plan.rooms.keys()].sort(), ACTORS.map(({ role, index }) => `${role}/${index}`).sort());
    assert.deepEqual(plan.more, []);
    isHabitable(plan);
  }
});

test('of many actors the first have rooms, and the others are counted', () => {
  const others = ACTORS.filter(({ role }) => !['detokenizer', 'streamer', 'input'].includes(role));
  for (const isNarrow of [false, true]) {
    for (const count of [1, 3, 4, 5, 8, 9, 40, 1024]) {
      const many = ['detokenizer', 'streamer', 'input'].flatMap((role) =>
        Array.from({ length: count }, (_, index) => ({ ...ACTORS[0], role, index })));
      const plan = planOf([...others, ...many], isNarrow);
      isHabitable(plan);
      for (const role of ['detokenizer', 'streamer', 'input']) {
        const shown = [...plan.rooms.keys()].filter((id) => id.startsWith(`${role}/`)).length;
        const isTold = plan.more.some(({ text }) => text === `and ${count - shown} more`);
        assert.ok(shown > 0 && (shown === count || isTold), `${shown} of ${count}`);
      }
      for (const way of waysOf(plan, 'streamer->ledger')) assert.ok(!/NaN|undefined/.test(way), way);
    }
  }
});

test('messages have ways between rooms', () => {
  for (const isNarrow of [false, true]) {
    const plan = planOf(ACTORS, isNarrow);
    const count = (edge) => waysOf(plan, edge).length;
    assert.equal(count('scheduler->worker'), 1);
    assert.equal(count('door->input'), 2);
    assert.equal(count('ledger->detokenizer'), 2);
    assert.equal(count('detokenizer->streamer'), 2);
    assert.equal(count('supervisor->ledger'), 1);
    assert.equal(count('timer') + count('device->worker'), 0);
    assert.equal(waysOut(plan).length, 2);
    for (const way of waysOf(plan, 'streamer->ledger')) assert.ok(!/NaN|undefined/.test(way), way);
  }
});

test('of several engines one is shown, and the queues are those of all', () => {
  const engines = [{ kv_cache: 'a', scheduler: null }, { kv_cache: 'b', scheduler: { num_running: 2, num_waiting: 3 } }];
  const two = snapshot(1000, { engines });
  assert.deepEqual([0, 1, 5].map((engine) => seenFrom(two, engine).kv_cache), ['a', 'b', 'b']);
  assert.equal(seenFrom(two, 5).engine, 1);
  assert.deepEqual(queuesOf(two), { running: 2, waiting: 3 });
  for (const isNarrow of [false, true]) {
    const { rooms } = planOf(ACTORS, isNarrow, 1);
    assert.ok(rooms.has('scheduler/1') && rooms.has('core/1') && !rooms.has('scheduler/0'));
    assert.ok(rooms.has('ledger/0') && rooms.has('streamer/1'));
  }
  const twice = [...ACTORS, { role: 'scheduler', index: 1, state: 'alive', restarts: 0 }];
  const replaced = twice.map((actor) => ({ ...actor, restarts: actor.role === 'scheduler' ? 1 : 0 }));
  const told = news(snapshot(1000, { actors: twice }), snapshot(1250, { actors: replaced }));
  assert.deepEqual(told.map(({ text }) => text.split(' was ')[0]), ['Scheduler of engine 0', 'Scheduler of engine 1']);
});

test('an axis ends at a round number', () => {
  assert.deepEqual([0, 0.3, 1, 1.2, 45, 50, 999, 1010].map(roundUp), [1, 0.5, 1, 2, 50, 50, 1000, 2000]);
});

test('pasted lines are texts, and empty ones are none', () => {
  assert.deepEqual(textsOf(' a \n\n\tb c\n'), ['a', 'b c']);
  assert.equal(scoreOf(0.98765), '0.988');
});

test('each role says what it holds, of any snapshot', () => {
  const totals = { steps: 3, scheduled_tokens: 9, recomputed_tokens: 0, output_tokens: 12_345, finished_requests: 2 };
  const bare = { ...snapshot(1000, { totals }), open_requests: 1, kv_cache: null, scheduler: null };
  const full = { ...bare, kv_cache: { num_blocks: 8, num_free: 6, num_cached: 3 }, scheduler: { num_running: 2, num_waiting: 1, step: 9 } };
  for (const { role } of ACTORS) {
    const { text, short, rows } = holdingsOf(role);
    assert.ok(text.length > 20, role);
    for (const one of [bare, full]) {
      for (const value of [short(one), ...rows(one).flat()]) assert.ok(!/undefined|NaN/.test(value), `${role}: ${value}`);
    }
  }
  assert.equal(holdingsOf('kv_cache').short(full), '2 of 8');
  assert.equal(holdingsOf('scheduler').short(full), '2 + 1');
  assert.equal(holdingsOf('ledger').short(full), '1 request');
  assert.equal(holdingsOf('unheard of').short(full), '');
});

test('a block that changed glows, and fades', () => {
  const glow = new Glow();
  const cells = (...states) => states.map((state) => ({ state, request: 0 }));
  glow.take(cells('free', 'free'), 0);
  assert.equal(glow.isOn(0), false, 'the first snapshot changes nothing');
  glow.take(cells('held', 'free'), 100);
  assert.deepEqual([glow.of(0, 100), glow.of(1, 100)], [1, 0]);
  assert.equal(glow.of(0, 100 + GLOW_MS / 2), 0.5);
  assert.equal(glow.isOn(100 + GLOW_MS), false);
  glow.take(cells('held', 'free', 'free'), 200);
  assert.equal(glow.isOn(200), false, 'another layout');
});
