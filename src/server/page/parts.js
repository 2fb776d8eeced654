// Messages in the form that the API reads: text, text files, pictures and sounds.

/** Returns the base64 text of a file. */
export async function base64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = '';
  // Arguments of one call are limited in number.
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/** Returns a fence that does not occur in `text`. */
function fenceOf(text) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((mark) => mark.length));
  return '`'.repeat(longest + 1);
}

/** Returns a text file as the model reads it. */
export function fileText({ name, text }) {
  const fence = fenceOf(text);
  const language = name.includes('.') ? name.split('.').at(-1).replace(/[^\w+#-]/g, '') : '';
  return `File ${name}:\n${fence}${language}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`;
}

/** Returns the format of a sound, as the API names it. */
const formatOf = ({ name, blob }) => {
  const format = (blob.type.split('/')[1] ?? name.split('.').at(-1)).replace(/^x-/, '').split(';')[0];
  return { mpeg: 'mp3', wave: 'wav' }[format] ?? format;
};

async function part(attachment) {
  const { kind, blob } = attachment;
  const data = await base64(blob);
  if (kind === 'image') return { type: 'image_url', image_url: { url: `data:${blob.type};base64,${data}` } };
  return { type: 'input_audio', input_audio: { data, format: formatOf(attachment) } };
}

/** Returns the content of a question: pictures and sounds, then files and text. */
export async function contentOf({ text, attachments = [] }) {
  const files = attachments.filter(({ kind }) => kind === 'text').map(fileText);
  const whole = [...files, text].filter(Boolean).join('\n\n');
  const media = attachments.filter(({ kind }) => kind !== 'text');
  if (!media.length) return whole;
  const parts = await Promise.all(media.map(part));
  return whole ? [...parts, { type: 'text', text: whole }] : parts;
}

/** Returns the API's message of a node. */
export async function messageOf(node) {
  if (node.role === 'tool') return { role: 'tool', tool_call_id: node.callId, content: node.text };
  if (node.role === 'user') return { role: 'user', content: await contentOf(node) };
  const calls = node.calls ?? [];
  if (!calls.length) return { role: 'assistant', content: node.text };
  return { role: 'assistant', content: node.text || null, tool_calls: calls };
}

/** Returns the API's messages of a path, after the system prompt if there is one. */
export async function messagesOf(path, system) {
  const first = system?.trim() ? [{ role: 'system', content: system.trim() }] : [];
  return [...first, ...await Promise.all(path.map(messageOf))];
}
