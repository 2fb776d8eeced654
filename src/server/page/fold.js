// A streamed answer, chunk by chunk, as a message of the conversation. Pure.

/** Returns an empty answer. */
export const blank = (model) => ({ role: 'assistant', text: '', reasoning: '', calls: [], model: model ?? '', told: null });

/** Returns the counts of an answer that begins. `numBefore` tokens are of a text that it continues. */
export const counts = (began) => ({ reason: null, tokens: 0, firstMs: 0, ms: 0, began });

function addCall(node, { index, id, function: { name, arguments: text } }) {
  node.calls[index] ??= { id, type: 'function', function: { name: '', arguments: '' } };
  const call = node.calls[index].function;
  if (name) call.name = name;
  call.arguments += text ?? '';
}

/** Adds a chunk to `node` and `told`. Throws the error that the server reports in it. */
export function fold(node, told, chunk, now) {
  if (chunk.error) throw Object.assign(new Error(chunk.error.message ?? String(chunk.error)), { status: chunk.error.code ?? 500 });
  if (chunk.model) node.model = chunk.model;
  if (chunk.usage) told.tokens = chunk.usage.completion_tokens;
  told.ms = now - told.began;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const { delta = {}, logprobs } = choice;
  const reasoning = delta.reasoning ?? delta.reasoning_content;
  if (delta.content || reasoning || delta.tool_calls) told.firstMs ||= told.ms;
  node.text += delta.content ?? '';
  node.reasoning += reasoning ?? '';
  for (const call of delta.tool_calls ?? []) addCall(node, call);
  if (node.logprobs && logprobs?.content) node.logprobs.push(...logprobs.content);
  told.reason = choice.finish_reason ?? told.reason;
}

/** Returns whether an answer has any content. */
export const hasContent = ({ text, reasoning, calls }) => Boolean(text || reasoning || calls.length);

/** Below this, a rate shows how pieces arrived, and not how fast they were made. */
const RATE_MS_MIN = 50;

/** Returns tokens a second, or 0 while it is unknown. */
export const rateOf = ({ tokens, firstMs, ms }) =>
  (tokens > 1 && ms - firstMs >= RATE_MS_MIN ? ((tokens - 1) / (ms - firstMs)) * 1000 : 0);
