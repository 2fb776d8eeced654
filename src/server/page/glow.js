// Which blocks changed lately. The demo model's requests end within a few snapshots, so a change
// stays visible for a moment. Pure.

/** The time until a change fades. */
export const GLOW_MS = 1400;

export class Glow {
  #keys = [];
  #changed = [];

  /** Takes the cells of a snapshot. Those of another layout have not changed. */
  take(cells, now) {
    const keys = cells.map(({ state, request }) => `${state}/${request}`);
    if (keys.length === this.#keys.length) {
      keys.forEach((key, i) => { if (key !== this.#keys[i]) this.#changed[i] = now; });
    } else {
      this.#changed = keys.map(() => -Infinity);
    }
    this.#keys = keys;
  }

  /** Returns 1 for a cell that has just changed, and 0 for one that has not changed lately. */
  of(cell, now) {
    return Math.max(0, 1 - (now - (this.#changed[cell] ?? -Infinity)) / GLOW_MS);
  }

  /** Returns whether any change is still visible. */
  isOn(now) {
    return this.#changed.some((at) => now - at < GLOW_MS);
  }
}
