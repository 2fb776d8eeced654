// Conversations as a file: JSON that another browser can read. Files within them are base64.

import { base64 } from './parts.js';

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

function attachment({ kind, name, text, type, data }) {
  if (!KINDS.includes(kind)) throw new Error(`an attachment has the kind ${kind}`);
  if (kind === 'text') return { kind, name: String(name), text: String(text) };
  return { kind, name: String(name), blob: new Blob([bytesOf(data)], { type: String(type) }) };
}

function node(given) {
  const { id, parent, role, text } = given;
  if (typeof id !== 'string' || !ROLES.includes(role) || typeof text !== 'string') {
    throw new Error('a message needs id, role and text');
  }
  return { ...given, parent: parent ?? null, ...(given.attachments && { attachments: given.attachments.map(attachment) }) };
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
  return file.conversations.map(({ messages, ...conversation }) => {
    if (typeof conversation.id !== 'string' || typeof conversation.title !== 'string') {
      throw new Error('a conversation needs id and title');
    }
    return [conversation, messages.map(node)];
  });
}

/** Returns the name of a file with these conversations. */
export function fileName(conversations, now = new Date()) {
  const day = now.toISOString().slice(0, 10);
  if (conversations.length !== 1) return `playhouse-${day}.json`;
  const words = conversations[0][0].title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40);
  return `playhouse-${words || day}.json`;
}
