// The fields of a request, from the settings as texts. Pure. Empty settings are not sent, so the
// server's defaults apply.

export const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed',
  'presence_penalty', 'frequency_penalty', 'repetition_penalty'];

/** Alternatives shown for a token. */
const NUM_ALTERNATIVES = 5;

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

function json(text, fits, wanted) {
  const value = JSON.parse(text);
  if (!fits(value)) throw new Error(wanted);
  return value;
}

/** Texts of JSON, each with the fields that it becomes. */
const TEXTS = {
  schema: (text) => ({
    response_format: {
      type: 'json_schema',
      json_schema: { name: 'answer', strict: true, schema: json(text, isObject, 'an object is wanted: {"type": "object", …}') },
    },
  }),
  tools: (text) => {
    const tools = json(text, Array.isArray, 'a list is wanted: [{"type": "function", …}]');
    return tools.length ? { tools } : {};
  },
  more: (text) => json(text, isObject, 'an object is wanted: {"ignore_eos": true}'),
};

/** Returns `{ fields }`, or `{ wrong, problem }` with the name of the invalid setting. */
export function fieldsOf(values) {
  const fields = {};
  if (values.model) fields.model = values.model;
  for (const name of NUMBERS) if (values[name]) fields[name] = Number(values[name]);
  const stop = (values.stop ?? '').split('\n').filter(Boolean);
  if (stop.length) fields.stop = stop;
  if (values.logprobs) Object.assign(fields, { logprobs: true, top_logprobs: NUM_ALTERNATIVES });
  if (values.thinking) fields.chat_template_kwargs = { enable_thinking: values.thinking === 'on' };
  for (const [name, read] of Object.entries(TEXTS)) {
    const text = (values[name] ?? '').trim();
    try {
      if (text) Object.assign(fields, read(text));
    } catch (error) {
      return { wrong: name, problem: error.message };
    }
  }
  return { fields };
}
