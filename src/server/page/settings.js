// The settings beside the conversation, as the fields of a request. Empty ones are not sent, so the
// server's defaults apply.

import { request } from './api.js';
import { $, h } from './dom.js';
import { setModels } from './pictures.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'max_tokens', 'seed'];
/** Alternatives shown for a token. */
const NUM_ALTERNATIVES = 5;

function tools() {
  const text = $('tools').value.trim();
  if (!text) return undefined;
  const list = JSON.parse(text);
  if (!Array.isArray(list)) throw new Error('a list is wanted: [{"type": "function", …}]');
  return list.length ? list : undefined;
}

/** Returns the fields, or `null` if one is invalid; that one gets the focus. */
export function fields() {
  const found = { model: $('model').value || undefined };
  const wrong = NUMBERS.map($).find((input) => !input.checkValidity());
  if (wrong) {
    $('params').open = true;
    wrong.reportValidity();
    return null;
  }
  for (const name of NUMBERS) {
    if ($(name).value !== '') found[name] = Number($(name).value);
  }
  if ($('logprobs').checked) Object.assign(found, { logprobs: true, top_logprobs: NUM_ALTERNATIVES });
  try {
    found.tools = tools();
    $('tools-problem').hidden = true;
  } catch (error) {
    $('params').open = true;
    $('tools-problem').textContent = `Tools: ${error.message}`;
    $('tools-problem').hidden = false;
    $('tools').focus();
    return null;
  }
  return found;
}

/** Returns the system prompt as messages: one or none. */
export function system() {
  const content = $('system').value.trim();
  return content ? [{ role: 'system', content }] : [];
}

/** Fills the list of models. */
export async function loadModels() {
  const { data } = await (await request('v1/models')).json();
  setModels(data);
  $('model').replaceChildren(...data.map(({ id }) => h('option', { value: id }, id)));
}
