// The files that go with the next message: chosen, dropped or pasted. They are kept in this page
// until the message is sent.

import { $, h } from './dom.js';
import { icon } from './icons.js';

/** Largest media file, bytes. In a request it takes a third more. */
const MEDIA_BYTES_MAX = 16 * 1024 * 1024;
/** Largest text file, bytes. */
const TEXT_BYTES_MAX = 1024 * 1024;
const PICTURES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp'];

let attachments = [];
let takes = { image: false, sound: false };
let report = () => {};

const addresses = new WeakMap();

/** Returns an address of a file in this page. */
function addressOf(blob) {
  if (!addresses.has(blob)) addresses.set(blob, URL.createObjectURL(blob));
  return addresses.get(blob);
}

/** Learns what the models of the server take. */
export function setModels(cards) {
  const has = (kind) => cards.some((card) => card.input_modalities?.includes(kind));
  takes = { image: has('image'), sound: has('audio') };
  const kinds = ['text', takes.image ? 'pictures' : null, takes.sound ? 'sounds' : null].filter(Boolean);
  const label = `Attach files: ${kinds.join(', ')}`;
  $('attach').setAttribute('aria-label', label);
  $('attach').title = label;
}

/** Returns how a message shows one of its files. */
export function shownFile({ kind, name, blob, text }) {
  if (kind === 'image') return h('img', { class: 'picture', src: addressOf(blob), alt: name });
  if (kind === 'sound') return h('audio', { class: 'sound', controls: true, src: addressOf(blob), 'aria-label': name });
  return h('details', { class: 'file' },
    h('summary', null, icon('file'), ' ', name, h('span', { class: 'note num' }, ` ${sizeOf(text.length)}`)),
    h('pre', { tabindex: 0 }, h('code', null, text)));
}

/** Returns a number of bytes as people read it. */
export const sizeOf = (bytes) => (bytes < 1024 ? `${bytes} bytes` : `${(bytes / 1024).toFixed(bytes < 10_240 ? 1 : 0)} kB`);

function preview({ kind, name, blob, text }) {
  if (kind === 'image') return h('img', { src: addressOf(blob), alt: name });
  const size = sizeOf(blob?.size ?? text.length);
  return h('span', { class: 'chip' }, icon(kind === 'sound' ? 'sound' : 'file'), h('span', null, name), h('span', { class: 'note num' }, size));
}

function draw() {
  const shown = attachments.map((attachment) => h('li', null,
    preview(attachment),
    h('button', {
      class: 'quiet',
      type: 'button',
      'aria-label': `Remove ${attachment.name}`,
      onclick: () => remove(attachment),
    }, '×')));
  $('attachments').replaceChildren(...shown);
  $('attachments').hidden = !shown.length;
}

function remove(attachment) {
  attachments = attachments.filter((other) => other !== attachment);
  draw();
  $('ask').focus();
}

/** Returns the text of a file, or `null` if it has none. */
async function textOf(file) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

/** Returns the attachment of a file. Throws if the model cannot read it. */
async function attachmentOf(file) {
  const name = file.name || 'picture';
  const kind = file.type.startsWith('image/') ? 'image' : file.type.startsWith('audio/') ? 'sound' : 'text';
  // Pictures that are text, as SVG is, can be read as text.
  const isMedia = kind === 'sound' || PICTURES.includes(file.type);
  if (isMedia && !takes[kind]) {
    throw new Error(`${name} is a ${kind === 'image' ? 'picture' : 'sound'}, and this model takes none.`);
  }
  const most = isMedia ? MEDIA_BYTES_MAX : TEXT_BYTES_MAX;
  if (file.size > most) throw new Error(`${name} has more than ${most >> 20} MB.`);
  // The browser forgets the file on the disk; its content is needed until the message is deleted.
  if (isMedia) return { kind, name, blob: new Blob([await file.arrayBuffer()], { type: file.type }) };
  const text = await textOf(file);
  if (text === null) throw new Error(`${name} is no text, and no ${takes.image ? 'PNG, JPEG, WebP, GIF or BMP picture' : 'file that this model takes'}.`);
  return { kind: 'text', name, text };
}

/** Resolves when all files so far are read. */
let reading = Promise.resolve();

/** Adds files. Those that the model cannot read are reported. */
export function add(files) {
  reading = reading.then(() => addAll(files)).catch((error) => report(error.message));
  return reading;
}

/** A message waits for this: it goes with all files that were chosen before it. */
export const areRead = () => reading;

async function addAll(files) {
  for (const file of files) {
    try {
      attachments.push(await attachmentOf(file));
    } catch (error) {
      report(error.message);
    }
  }
  draw();
}

/** Takes the files, for a message. */
export function take() {
  const taken = attachments;
  attachments = [];
  draw();
  return taken;
}

/** Returns whether there are files. */
export const areThere = () => attachments.length > 0;

function startDrop(place) {
  const carriesFiles = (event) => event.dataTransfer?.types.includes('Files');
  for (const name of ['dragenter', 'dragover']) {
    place.addEventListener(name, (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      place.classList.add('dropping');
    });
  }
  place.addEventListener('dragleave', (event) => {
    if (!place.contains(event.relatedTarget)) place.classList.remove('dropping');
  });
  place.addEventListener('drop', (event) => {
    place.classList.remove('dropping');
    if (!carriesFiles(event)) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
}

/** Takes files from the button, the clipboard, and what is dropped. `tell` shows a problem. */
export function startAttachments(tell) {
  report = tell;
  const file = $('file');
  $('attach').replaceChildren(icon('attach'));
  $('attach').addEventListener('click', () => file.click());
  file.addEventListener('change', () => {
    add([...file.files]);
    file.value = '';
  });
  $('ask').addEventListener('paste', (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    add(files);
  });
  startDrop($('view-chat'));
}
