// Keeps the last snapshot of the house and passes it to the views. It listens while the page is
// visible, and connects again when the server is back.

import { request } from './api.js';
import { events } from './events.js';

const RETRY_MS = 1000;
/** Time after which a hidden page stops listening. */
const HIDDEN_MS = 10_000;

const listeners = new Set();
let current = null;
let connection = null;
let hiddenTimer = 0;

/** Calls back with each snapshot, and with `null` when the connection is lost. */
export function onSnapshot(call) {
  listeners.add(call);
  if (current) call(current);
}

function tell(snapshot) {
  current = snapshot;
  for (const call of listeners) call(snapshot);
}

async function listen(signal) {
  while (!signal.aborted) {
    try {
      const response = await request('house/events', { signal });
      for await (const data of events(response)) tell(JSON.parse(data));
    } catch (error) {
      // Without a key there is no data until the page is loaded again or a message is sent.
      if (error.status === 401) return;
    }
    if (signal.aborted) return;
    tell(null);
    await new Promise((wake) => setTimeout(wake, RETRY_MS));
  }
}

function connect() {
  clearTimeout(hiddenTimer);
  if (connection) return;
  connection = new AbortController();
  const mine = connection;
  listen(mine.signal).finally(() => {
    if (connection === mine) connection = null;
  });
}

function disconnect() {
  connection?.abort();
  connection = null;
}

/** Starts to listen. Goes on as long as the page is visible. */
export function start() {
  connect();
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) connect();
    else hiddenTimer = setTimeout(disconnect, HIDDEN_MS);
  });
}

/** Tries again, if a missing key has ended it. */
export const wake = connect;
