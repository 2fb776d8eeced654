// A search over pasted texts: the server ranks them by their relevance to a query.

import { request } from './api.js';
import { $, h } from './dom.js';

/** Returns the texts of the lines that are not empty. */
export const textsOf = (pasted) => pasted.split('\n').map((line) => line.trim()).filter(Boolean);

/** Returns a score as people read it. */
export const scoreOf = (score) => score.toFixed(3);

function show(results) {
  const item = ({ document, relevance_score: score }) => h('li', null,
    h('span', { class: 'num' }, scoreOf(score)), ' ', h('span', { class: 'plain' }, document.text));
  $('search-found').replaceChildren(...results.map(item));
}

function fail(message) {
  $('search-problem').hidden = message === null;
  $('search-problem').textContent = message ?? '';
}

async function search(event) {
  event.preventDefault();
  const query = $('search-query').value.trim();
  const documents = textsOf($('search-texts').value);
  if (!query || !documents.length) {
    fail('Paste some texts, and write a query.');
    return;
  }
  fail(null);
  $('search-go').disabled = true;
  try {
    const answer = await request('rerank', { body: { query, documents } });
    show((await answer.json()).results);
  } catch (error) {
    fail(error.message);
  } finally {
    $('search-go').disabled = false;
  }
}

/** Makes the form work. */
export function startSearch() {
  $('search').addEventListener('submit', search);
}
