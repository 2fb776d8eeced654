// Requests to the server that the page is from. Addresses are relative, and the key is sent if
// there is one.

import { $ } from './dom.js';

let key = '';
let asking = null;

const address = (path) => new URL(path, document.baseURI);

/** An answer whose status is an error. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function failure(response) {
  let message = `the server answered ${response.status}`;
  try {
    const { error } = await response.json();
    message = typeof error === 'string' ? error : error?.message ?? message;
  } catch {
    // Not every answer is JSON: the status says enough.
  }
  return new ApiError(response.status, message);
}

/** Asks for a key until there is one. Concurrent callers wait for the same answer. */
function askForKey(wasRefused) {
  asking ??= new Promise((resolve) => {
    const dialog = $('key-dialog');
    $('key-problem').hidden = !wasRefused;
    dialog.returnValue = 'cancel';
    dialog.addEventListener('close', () => {
      asking = null;
      const given = dialog.returnValue === 'use' ? $('key').value.trim() : '';
      $('key').value = '';
      if (given) key = given;
      resolve(given !== '');
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** Calls `fetch`. Without an answer, the error has a name that says so. */
async function reach(to, options) {
  try {
    return await fetch(to, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw Object.assign(new Error(error.message), { name: 'NetworkError' });
  }
}

/** Calls `fetch` with the key. Asks for a key if the server needs one. */
export async function request(path, { body, signal, method } = {}) {
  for (;;) {
    const used = key;
    const headers = {};
    if (used) headers.Authorization = `Bearer ${used}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await reach(address(path), {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: 'no-store',
    });
    if (response.ok) return response;
    const error = await failure(response);
    // Another request may have been given a key meanwhile.
    if (response.status === 401 && (key !== used || await askForKey(used !== ''))) continue;
    throw error;
  }
}
