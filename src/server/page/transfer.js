// Conversations as a file: JSON that another browser can read. Files within them are base64.

import { base64 } from './parts.js';
import { beginning } from './tree.js';

export const FORMAT = 'playhouse-conversations';
export const VERSION = 1;

const ROLES = ['user', 'assistant', 'tool'];
const KINDS = ['text', 'image', 'sound'];

async function packed(node) {
  const { conversation: _, attachments, ...rest } = node;
  if (!attachments?.length) return rest;
  const pack = async ({ blob, ...more }) => (blob ? { ...more, type: blob.type, data: await base64(blob) } : more);
  return { ...rest, attachments: await Promise.all(attachments.map(pack)) };
}

/** Returns the text of a file with `conversations`: pairs of a conversation and its messages. */
export async function exported(conversations) {
  const all = await Promise.all(conversations.map(async ([conversation, nodes]) =>
    ({ ...conversation, messages: await Promise.all(nodes.map(packed)) })));
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations: all }, null, 1);
}

const bytesOf = (data) => Uint8Array.from(atob(data), (character) => character.charCodeAt(0));

const isText = (value) => typeof value === 'string';
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
/** Ids are parts of selectors. */
const isId = (value) => isText(value) && /^[\w-]{1,64}$/.test(value);

/** Returns the fields of `given` that pass their checks. Others of a file have no meaning here. */
const checked = (given, checks) => Object.fromEntries(Object.entries(checks)
  .filter(([name, passes]) => passes(given?.[name])).map(([name]) => [name, given[name]]));

function attachment({ kind, name, text, type, data }) {
  if (!KINDS.includes(kind)) throw new Error(`an attachment has the kind ${kind}`);
  if (kind === 'text') return { kind, name: String(name), text: String(text) };
  return { kind, name: String(name), blob: new Blob([bytesOf(data)], { type: String(type) }) };
}

function call({ id, function: { name, arguments: text } }) {
  return { id: String(id), type: 'function', function: { name: String(name), arguments: String(text) } };
}

const isToken = (value) => isText(value?.token) && isNumber(value?.logprob);
const areTokens = (value) => Array.isArray(value)
  && value.every((one) => isToken(one) && (one.top_logprobs ?? []).every(isToken));

function node(given) {
  const { id, parent, role, text, attachments, calls, told } = given;
  if (!isId(id) || !ROLES.includes(role) || !isText(text)) throw new Error('a message needs id, role and text');
  const found = {
    ...checked(given, { at: isNumber, callId: isText, logprobs: areTokens }),
    id,
    parent: isId(parent) ? parent : null,
    role,
    text,
  };
  if (attachments) found.attachments = attachments.map(attachment);
  if (role !== 'assistant') return found;
  const numbers = { tokens: isNumber, firstMs: isNumber, ms: isNumber };
  return {
    model: '',
    reasoning: '',
    ...found,
    ...checked(given, { model: isText, reasoning: isText }),
    calls: (calls ?? []).map(call),
    told: told ? { reason: null, tokens: 0, firstMs: 0, ms: 0, ...checked(told, { reason: isText, ...numbers }) } : null,
  };
}

function conversation(given) {
  const { id, title } = given;
  if (!isId(id) || !isText(title)) throw new Error('a conversation needs id and title');
  return { created: 0, updated: 0, current: null, ...checked(given, { created: isNumber, updated: isNumber, current: isId, system: isText }), id, title };
}

/** Returns the pairs that `exported` was given. Throws if the text is something else. */
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('the file is no JSON');
  }
  if (file?.format !== FORMAT) throw new Error(`the file is no export of conversations: its format is not ${FORMAT}`);
  if (file.version !== VERSION) throw new Error(`the file has version ${file.version}; this page reads ${VERSION}`);
  if (!Array.isArray(file.conversations)) throw new Error('the file has no list of conversations');
  return file.conversations.map(({ messages, ...more }) => [conversation(more), messages.map(node)]);
}

/** Returns the name of a file with these conversations. */
export function fileName(conversations, now = new Date()) {
  const day = now.toISOString().slice(0, 10);
  if (conversations.length !== 1) return `playhouse-${day}.json`;
  const words = conversations[0][0].title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '');
  return `playhouse-${beginning(words, 40) || day}.json`;
}
