// A tool call of an answer, and a place for its result.

import { codeBlock } from './code.js';
import { h } from './dom.js';

/** Returns arguments as people read them. An incomplete text stays as it is. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns the card of a call. `give` takes its result. */
export function callCard(call, give) {
  const name = h('code');
  const given = codeBlock('', 'json');
  const element = h('section', { class: 'call' }, h('h3', null, 'Calls ', name), given.element);
  let form = null;

  /** Shows the call, and asks for its result if the answer waits for it. */
  function update(isWanted) {
    name.textContent = call.function.name;
    given.show(pretty(call.function.arguments), true);
    if (!isWanted) {
      form?.remove();
      form = null;
    } else if (!form) {
      const result = h('textarea', { rows: 2, placeholder: 'What the tool gave', 'aria-label': `What ${call.function.name} gave` });
      form = h('form', { class: 'result' }, result, h('button', { class: 'quiet' }, 'Give the result'));
      form.addEventListener('submit', (event) => {
        event.preventDefault();
        give(call, result.value);
      });
      element.append(form);
    }
  }
  return { element, update };
}
