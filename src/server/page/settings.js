// The settings beside the conversation. The browser keeps them.

import { request } from './api.js';
import { setModels } from './attachments.js';
import { $, h } from './dom.js';
import { NUMBERS, fieldsOf } from './fields.js';
import { kept } from './kept.js';

const KEY = 'playhouse-settings';
const TEXTS = ['thinking', 'stop', 'schema', 'tools', 'more'];
const NAMES = ['model', ...NUMBERS, ...TEXTS];
const LABELS = { schema: 'JSON schema', tools: 'Tools', more: 'More fields' };

/** `stop` is the button that ends an answer. */
const input = (name) => $(name === 'stop' ? 'stop-at' : name);

const values = () => ({
  ...Object.fromEntries(NAMES.map((name) => [name, input(name).value])),
  logprobs: $('logprobs').checked,
});

function showField(field) {
  $('params').open = true;
  const box = field.closest('details');
  if (box) box.open = true;
}

/** Returns the fields, or `null` if one is invalid; that one gets the focus. */
export function fields() {
  const wrong = NUMBERS.map($).find((field) => !field.checkValidity());
  if (wrong) {
    showField(wrong);
    wrong.reportValidity();
    return null;
  }
  const found = fieldsOf(values());
  for (const name of Object.keys(LABELS)) {
    const isWrong = name === found.wrong;
    $(`${name}-problem`).hidden = !isWrong;
    $(name).setAttribute('aria-invalid', isWrong);
    if (!isWrong) continue;
    showField($(name));
    $(`${name}-problem`).textContent = `${LABELS[name]}: ${found.problem}`;
    $(name).focus();
  }
  return found.fields ?? null;
}

/** Returns the settings that the browser kept. */
function last() {
  try {
    return JSON.parse(kept.get(KEY)) ?? {};
  } catch {
    return {};
  }
}

/** Fills the list of models. */
export async function loadModels() {
  const { data } = await (await request('v1/models')).json();
  setModels(data);
  const chosen = $('model').value || last().model;
  $('model').replaceChildren(...data.map(({ id }) => h('option', { value: id, selected: id === chosen }, id)));
}

function reset() {
  for (const name of [...NUMBERS, ...TEXTS]) input(name).value = '';
  $('logprobs').checked = false;
  kept.set(KEY, null);
}

/** Makes the form work. */
export function startSettings() {
  const before = last();
  for (const name of [...NUMBERS, ...TEXTS]) input(name).value = before[name] ?? '';
  $('logprobs').checked = before.logprobs === true;
  $('advanced').open = TEXTS.some((name) => name !== 'thinking' && input(name).value);
  $('settings').addEventListener('change', () => kept.set(KEY, JSON.stringify(values())));
  $('settings').addEventListener('submit', (event) => event.preventDefault());
  $('reset').addEventListener('click', reset);
  // Beside the conversation where there is room.
  $('params').open = matchMedia('(min-width: 1100px)').matches;
}
