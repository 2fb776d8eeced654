// Small values that a browser keeps for this page, and forgets where its user forbids it.

/** Returns an object over a storage of the browser, which may refuse. */
const over = (name) => ({
  get(key) {
    try {
      return window[name].getItem(key);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      if (value === null) window[name].removeItem(key);
      else window[name].setItem(key, value);
    } catch {
      // It is forbidden or full: the value lasts as long as the page.
    }
  },
});

/** Kept until the user deletes it. */
export const kept = over('localStorage');
/** Kept as long as the tab. */
export const keptByTab = over('sessionStorage');
