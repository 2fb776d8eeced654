// The engines of a server. Most servers have one. The views show one at a time.

/** The roles that each engine has for itself. */
export const CORE = new Set(['core', 'kv_cache', 'structured_output', 'encoder_cache', 'encoder_worker', 'scheduler', 'worker']);

/** Returns the snapshot with the parts of an engine, of the last one if there is no such engine. */
export function seenFrom(snapshot, index) {
  const engine = Math.max(0, Math.min(index, snapshot.engines.length - 1));
  return { ...snapshot, ...snapshot.engines[engine], engine };
}

/** Returns the running and the waiting requests of all engines. */
export function queuesOf({ engines }) {
  const sum = (name) => engines.reduce((all, { scheduler }) => all + (scheduler?.[name] ?? 0), 0);
  return { running: sum('num_running'), waiting: sum('num_waiting') };
}
