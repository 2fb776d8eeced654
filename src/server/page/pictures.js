// The pictures that go with the next message: chosen, dropped or pasted. They are kept in this page
// alone until the message is sent.

import { $, h } from './dom.js';

/** Largest file, bytes. In a request it takes a third more. */
const BYTES_MAX = 16 * 1024 * 1024;
const TYPES = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp'];

let pictures = [];
let isTaken = false;
let report = () => {};

/** Shows or hides the button. `cards` are the models of the server. */
export function setModels(cards) {
  isTaken = cards.some((card) => card.input_modalities?.includes('image'));
  $('add-picture').hidden = !isTaken;
}

function read(file) {
  return new Promise((found, failed) => {
    const reader = new FileReader();
    reader.onload = () => found(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

function draw() {
  const shown = pictures.map((picture) => h('li', null,
    h('img', { src: picture.shown, alt: picture.name }),
    h('button', {
      class: 'quiet',
      type: 'button',
      'aria-label': `Remove ${picture.name}`,
      onclick: () => remove(picture),
    }, '×')));
  $('pictures').replaceChildren(...shown);
  $('pictures').hidden = !shown.length;
}

function remove(picture) {
  pictures = pictures.filter((other) => other !== picture);
  URL.revokeObjectURL(picture.shown);
  draw();
  $('ask').focus();
}

/** Adds files. Those that are no pictures, or too large, are reported. */
export async function add(files) {
  for (const file of files) {
    const name = file.name || 'picture';
    if (!TYPES.includes(file.type)) {
      report(`${name} is no PNG, JPEG, WebP, GIF or BMP picture.`);
    } else if (file.size > BYTES_MAX) {
      report(`${name} has more than ${BYTES_MAX >> 20} MB.`);
    } else {
      pictures.push({ name, url: await read(file), shown: URL.createObjectURL(file) });
    }
  }
  draw();
}

/** Takes the pictures, for a message. */
export function take() {
  const taken = pictures;
  pictures = [];
  draw();
  return taken;
}

/** Puts pictures back, whose message was not answered. */
export function giveBack(taken) {
  pictures = [...taken, ...pictures];
  draw();
}

/** Returns the content of a message: the pictures, then the text. */
export function content(taken, text) {
  if (!taken.length) return text;
  const parts = taken.map(({ url }) => ({ type: 'image_url', image_url: { url } }));
  return text ? [...parts, { type: 'text', text }] : parts;
}

/** Returns the pictures of a message as the conversation shows them. */
export const shown = (taken) => taken.map((picture) => h('img', { class: 'picture', src: picture.shown, alt: picture.name }));

/** Takes pictures from the button, the clipboard, and what is dropped. `tell` shows a problem. */
export function startPictures(tell) {
  report = tell;
  const file = $('picture-file');
  $('add-picture').addEventListener('click', () => file.click());
  file.addEventListener('change', () => {
    add([...file.files]);
    file.value = '';
  });
  $('ask').addEventListener('paste', (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!isTaken || !files.length) return;
    event.preventDefault();
    add(files);
  });
  const place = $('view-chat');
  const carriesFiles = (event) => isTaken && event.dataTransfer?.types.includes('Files');
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
