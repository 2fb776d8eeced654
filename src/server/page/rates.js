// Rates, which a snapshot does not contain. Pure: snapshots in, numbers out.

import { queuesOf } from './engines.js';
import { nameOf } from './plan.js';

/** The time span of the plots. */
export const WINDOW_MS = 60_000;
/** The time over which rates are measured: shorter ones only flicker. */
const RATE_MS = 1000;

/** The last minute. */
export class History {
  points = [];
  #snapshots = [];

  /** Takes the next snapshot, and returns the current rates. */
  push(snapshot) {
    const last = this.#snapshots.at(-1);
    // Another engine counts from its own start.
    if (last && snapshot.at_ms < last.at_ms) {
      this.#snapshots = [];
      this.points = [];
    }
    this.#snapshots.push(snapshot);
    const before = this.#before(snapshot.at_ms - RATE_MS);
    const seconds = (snapshot.at_ms - before.at_ms) / 1000;
    const rate = (now, then) => (seconds > 0 ? Math.max(0, now - then) / seconds : 0);
    const isFirst = seconds === 0;
    const total = (name) => rate(snapshot.totals[name], before.totals[name]);
    const edges = new Map(before.edges.map(({ edge, messages }) => [edge, messages]));
    const point = {
      at: snapshot.at_ms,
      isFirst,
      output: total('output_tokens'),
      computed: total('scheduled_tokens'),
      steps: total('steps'),
      ...queuesOf(snapshot),
      ttft: snapshot.time_to_first_token,
      itl: snapshot.inter_token_latency,
      usage: usage(snapshot.kv_cache),
      held: snapshot.kv_cache ? snapshot.kv_cache.num_blocks - snapshot.kv_cache.num_free : null,
      cached: snapshot.kv_cache?.num_cached ?? null,
      edges: new Map(snapshot.edges.map(({ edge, messages }) =>
        [edge, rate(messages, edges.get(edge) ?? messages)])),
    };
    this.points.push(point);
    this.points = this.points.filter(({ at }) => at > point.at - WINDOW_MS - RATE_MS);
    this.#snapshots = this.#snapshots.filter(({ at_ms }) => at_ms >= before.at_ms);
    return point;
  }

  /** Forgets the memory of the engine that was shown. Rates are those of all engines. */
  forgetMemory() {
    this.points = this.points.map((point) => ({ ...point, usage: 0, held: null, cached: null }));
  }

  /** Returns the last snapshot from before `at`, or the first one. */
  #before(at) {
    return this.#snapshots.findLast((one) => one.at_ms <= at) ?? this.#snapshots[0];
  }
}

/** Returns the share of the KV cache that requests hold. */
export function usage(cache) {
  return cache?.num_blocks ? 1 - cache.num_free / cache.num_blocks : 0;
}

/** Returns the differences from the last snapshot, in words. */
export function news(before, now) {
  if (!before || before.at_ms > now.at_ms) return [];
  const told = [];
  const name = (actor) => nameOf(actor, now.actors.filter(({ role }) => role === actor.role).length);
  const old = new Map(before.actors.map((actor) => [`${actor.role}/${actor.index}`, actor]));
  for (const actor of now.actors) {
    const known = old.get(`${actor.role}/${actor.index}`);
    if (!known) continue;
    if (actor.restarts > known.restarts) {
      told.push({ kind: 'restart', text: `${name(actor)} was replaced (${actor.restarts} so far)` });
    } else if (actor.state !== known.state && actor.state === 'dead') {
      told.push({ kind: 'death', text: `${name(actor)} died` });
    }
  }
  if (now.epoch > before.epoch) {
    told.push({ kind: 'epoch', text: `epoch ${now.epoch} began: the core starts from what is committed` });
  }
  if (now.totals.preemptions > before.totals.preemptions) {
    const count = now.totals.preemptions - before.totals.preemptions;
    told.push({ kind: 'preemption', text: `${count} ${count === 1 ? 'request' : 'requests'} preempted` });
  }
  if (now.health !== before.health) told.push({ kind: 'health', text: `the engine is ${now.health}` });
  return told;
}
