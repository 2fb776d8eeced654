// The plan of the house: the place of each room, and the paths of messages. Pure: roles in, boxes
// and paths out. There are two plans, one for wide windows and one for phones.

import { CORE } from './engines.js';

/** The work of each role, for the user, and the object on the wall of its room. */
export const ROLES = {
  root: ['Root', 'Holds up the roof: supervises the supervisors, and owns what must outlive every actor.',
    'M12 3l2.6 6 6.4.5-4.9 4.2 1.5 6.3-5.6-3.4L6.4 20l1.5-6.3L3 9.5 9.4 9z'],
  core: ['Core', 'Supervises the rooms where tokens are made. When one of them dies, those after it start anew.'],
  ingress: ['Ingress', 'Supervises the input processors.'],
  egress: ['Egress', 'Supervises those who bring the text out.'],
  ledger: ['Ledger', 'The ground that the house stands on: what was asked, and every token that is certain.',
    'M12 6c-2-2-5-2-9-2v14c4 0 7 0 9 2 2-2 5-2 9-2V4c-4 0-7 0-9 2zM12 6v14'],
  input: ['Input', 'Makes token ids of what a client wrote, and checks it.', 'M3 6h18v12H3zM3 7l9 7 9-7'],
  kv_cache: ['KV cache', 'Knows the blocks: which request holds which, and what can be used again.',
    'M4 3h16v18H4zM4 9h16M4 15h16M10 6h4M10 12h4M10 18h4'],
  structured_output: ['Grammars', 'Compiles the grammars that outputs have to follow.',
    'M8 4c-3 0-3 2-3 4s0 4-2 4c2 0 2 2 2 4s0 4 3 4M16 4c3 0 3 2 3 4s0 4 2 4c-2 0-2 2-2 4s0 4-3 4'],
  encoder_cache: ['Encodings', 'Knows which pictures and sounds are encoded, and which requests need them.',
    'M4 5h16v14H4zM4 15l5-5 4 4 3-3 4 4M15 8h2v2h-2z'],
  encoder_worker: ['Encoder', 'Encodes pictures and sounds, on a thread of its own.',
    'M2 12c4-7 16-7 20 0-4 7-16 7-20 0zM12 9a3 3 0 100 6 3 3 0 100-6'],
  scheduler: ['Scheduler', 'Decides who computes how many tokens in the next step.',
    'M12 3a9 9 0 100 18 9 9 0 100-18M12 7v5l3.5 2.5'],
  worker: ['Worker', 'Runs the model, a step at a time, on a thread of its own.',
    'M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4'],
  detokenizer: ['Detokenizer', 'Makes text of tokens, and looks for stop strings.',
    'M3 19L8.5 5 14 19M5 14h7M21 10v9M21 14.500a3.300 4.500 0 100 .1'],
  streamer: ['Streamer', 'Puts the text where the client waits for it.', 'M3 11l18-8-7 18-3.500-7zM10.500 14L21 3'],
};

export const idOf = ({ role, index }) => `${role}/${index}`;
/** Returns an actor's name, with its number among `count` of its role. Engines count from 0. */
export function nameOf({ role, index }, count = 1) {
  const name = ROLES[role]?.[0] ?? role;
  if (count < 2) return name;
  return CORE.has(role) ? `${name} of engine ${index}` : `${name} ${index + 1}`;
}
/** The same for a small room. */
export const shortName = (name) => name.replace('Detokenizer', 'Detok.');

const box = (x, y, w, h) => ({ x, y, w, h });

/** Returns `count` boxes on top of each other. Many stand closer, so that they keep some height. */
const column = (area, count, gap) => {
  const apart = Math.min(gap, area.h / (3 * count));
  const height = (area.h - apart * (count - 1)) / count;
  return Array.from({ length: count }, (_, i) => box(area.x, area.y + i * (height + apart), area.w, height));
};

/** Returns `count` boxes beside each other. */
const row = (area, count, gap) => {
  const apart = Math.min(gap, area.w / (3 * count));
  const width = (area.w - apart * (count - 1)) / count;
  return Array.from({ length: count }, (_, i) => box(area.x + i * (width + apart), area.y, width, area.h));
};

/** Most rooms of a kind whose names can be read: in a column, and in a row on a phone. */
const COLUMN_MOST = 7;
const ROW_MOST = 2;
/** The part of a column, and of a row, for the number of others. */
const TOLD_HEIGHT = 28;
const TOLD_WIDTH = 88;

/** Returns the first actors of a role, and how many others there are. */
function firstOf(actors, role, most) {
  const all = actors.filter((actor) => actor.role === role).map(({ index }) => index);
  return { shown: all.slice(0, most), others: Math.max(0, all.length - most) };
}

/** Divides an area among rooms. If there are others, its end says how many. */
function furnish(plan, { x, y, w, h }, gap, ids, others) {
  const [width, height] = plan.isNarrow ? [others && TOLD_WIDTH, h] : [w, others && TOLD_HEIGHT];
  const rooms = plan.isNarrow
    ? row(box(x, y, w - width, h), ids.length, others ? 8 : gap)
    : column(box(x, y, w, h - height), ids.length, gap);
  ids.forEach((id, i) => plan.rooms.set(id, rooms[i]));
  if (!others) return;
  const [tellX, tellY] = middle(box(x + w - width, y + h - height, width, height));
  plan.more.push({ x: tellX, y: tellY + 5, text: `and ${others} more` });
}

function wide(actors) {
  const inputs = firstOf(actors, 'input', COLUMN_MOST);
  // Each has two rooms.
  const shards = firstOf(actors, 'detokenizer', COLUMN_MOST >> 1);
  const rooms = new Map([
    ['root/0', box(430, 90, 180, 74)],
    ['ingress/0', box(66, 190, 188, 36)],
    ['core/0', box(290, 190, 460, 36)],
    ['egress/0', box(786, 190, 188, 36)],
    ['encoder_cache/0', box(290, 242, 144, 118)],
    ['kv_cache/0', box(448, 242, 144, 118)],
    ['structured_output/0', box(606, 242, 144, 118)],
    ['encoder_worker/0', box(290, 410, 144, 118)],
    ['scheduler/0', box(448, 410, 144, 118)],
    ['worker/0', box(606, 410, 144, 118)],
    ['ledger/0', box(330, 590, 380, 84)],
  ]);
  const plan = {
    isNarrow: false,
    view: [-44, 6, 1128, 692],
    rooms,
    more: [],
    roof: 'M520 16 30 176H1010Z',
    chimney: box(790, 44, 46, 90),
    wings: [box(60, 176, 200, 370), box(280, 176, 480, 370), box(780, 176, 200, 370)],
    walls: box(52, 176, 936, 372),
    cellar: box(290, 556, 460, 132),
    ground: 552,
    sky: [60, 66],
    outside: { door: [-16, 385], clients: [1056, 385] },
  };
  furnish(plan, box(70, 242, 180, 286), 22, inputs.shown.map((i) => `input/${i}`), inputs.others);
  const pairs = shards.shown.flatMap((i) => [`detokenizer/${i}`, `streamer/${i}`]);
  furnish(plan, box(790, 242, 180, 286), 12, pairs, shards.others);
  return plan;
}

function narrow(actors) {
  const inputs = firstOf(actors, 'input', ROW_MOST);
  const shards = firstOf(actors, 'detokenizer', ROW_MOST);
  const rooms = new Map([
    ['root/0', box(138, 66, 124, 54)],
    ['ingress/0', box(36, 142, 328, 30)],
    ['core/0', box(36, 272, 328, 30)],
    ['encoder_cache/0', box(44, 312, 102, 84)],
    ['kv_cache/0', box(149, 312, 102, 84)],
    ['structured_output/0', box(254, 312, 102, 84)],
    ['encoder_worker/0', box(44, 432, 102, 84)],
    ['scheduler/0', box(149, 432, 102, 84)],
    ['worker/0', box(254, 432, 102, 84)],
    ['egress/0', box(36, 542, 328, 30)],
    ['ledger/0', box(70, 816, 260, 76)],
  ]);
  const plan = {
    isNarrow: true,
    view: [0, 0, 400, 918],
    rooms,
    more: [],
    roof: 'M200 12 4 132H396Z',
    chimney: box(292, 30, 28, 60),
    wings: [box(28, 134, 344, 130), box(28, 268, 344, 260), box(28, 532, 344, 234)],
    walls: box(22, 132, 356, 640),
    cellar: box(46, 782, 308, 124),
    ground: 776,
    sky: [36, 40],
    outside: { door: [28, 226], clients: [391, 711] },
  };
  furnish(plan, box(44, 196, 312, 60), 20, inputs.shown.map((i) => `input/${i}`), inputs.others);
  for (const [role, y] of [['detokenizer', 582], ['streamer', 676]]) {
    furnish(plan, box(44, y, 312, 70), 44, shards.shown.map((i) => `${role}/${i}`), shards.others);
  }
  return plan;
}

/** Returns the plan for these actors. Of several engines it has the rooms of one. */
export function planOf(actors, isNarrow, engine = 0) {
  const plan = (isNarrow ? narrow : wide)(actors);
  const idIn = (role, id) => (CORE.has(role) ? idOf({ role, index: engine }) : id);
  plan.rooms = new Map([...plan.rooms].map(([id, room]) => [idIn(id.split('/')[0], id), room]));
  return plan;
}

/** Returns the rooms of an end of an edge: several if a role has several actors. */
function roomsOf(plan, end) {
  const role = { supervisor: 'core', device: 'worker', compiler: 'structured_output' }[end] ?? end;
  return [...plan.rooms].filter(([id]) => id.startsWith(`${role}/`)).map(([, room]) => room);
}

const middle = ({ x, y, w, h }) => [x + w / 2, y + h / 2];
const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Returns the point where a line from the middle of `room` towards `[x, y]` leaves it. */
function border(room, [x, y]) {
  const [cx, cy] = middle(room);
  const [dx, dy] = [x - cx, y - cy];
  const scale = Math.min(dx ? room.w / 2 / Math.abs(dx) : Infinity, dy ? room.h / 2 / Math.abs(dy) : Infinity, 1);
  return [cx + dx * scale, cy + dy * scale];
}

/** Returns the way from one room to a neighbour, a little to the side: there may be a way back. */
function straight(from, to) {
  const [a, b] = [border(from, middle(to)), border(to, middle(from))];
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const length = Math.hypot(dx, dy) || 1;
  const [ox, oy] = [(-dy / length) * 8, (dx / length) * 8];
  return `M${at(a[0] + ox, a[1] + oy)}L${at(b[0] + ox, b[1] + oy)}`;
}

/** Returns where a corridor at `x` meets `room`: above or below it, or else at a side. */
function gate(room, x, isAbove, shift) {
  const isOver = x > room.x + 12 && x < room.x + room.w - 12;
  if (isOver) return { x, y: isAbove ? room.y : room.y + room.h, isOver };
  return { x: x > room.x ? room.x + room.w : room.x, y: room.y + room.h / 2 + shift, isOver };
}

/** Along a corridor at `x`, up or down. */
function around(from, to, x, lane) {
  const isDown = from.y < to.y;
  const a = gate(from, x, !isDown, lane * 6);
  const b = gate(to, x, isDown, lane * 7);
  const down = isDown ? 1 : -1;
  const r = Math.min(9, Math.abs(b.y - a.y) / 2);
  const [out, into] = [Math.sign(x - a.x) * r, Math.sign(b.x - x) * r];
  const begin = a.isOver ? `M${at(x, a.y)}` : `M${at(a.x, a.y)}H${x - out}Q${at(x, a.y)} ${at(x, a.y + down * r)}`;
  const end = b.isOver ? `V${b.y}` : `V${b.y - down * r}Q${at(x, b.y)} ${at(x + into, b.y)}H${b.x}`;
  return begin + end;
}

/** Returns the way straight down, at the middle of `room`. */
const drop = ({ x, w }, from, to) => `M${at(x + w / 2, from)}V${to}`;

/** The corridor between two rooms that are no neighbours, if they are none. */
function corridor(plan, from, to, lane) {
  const ends = [from, to].sort();
  const isTo = (role) => ends.includes('ledger') && ends.includes(role);
  if (isTo('door')) return plan.isNarrow ? 14 + lane : 30;
  if (plan.isNarrow) {
    if (isTo('scheduler')) return 200 + lane * 15;
    if (isTo('worker')) return 366 + lane * 4;
    if (isTo('detokenizer') || isTo('streamer')) return 200 + lane * 7;
    return null;
  }
  return isTo('detokenizer') || isTo('streamer') ? 770 + lane * 7 : null;
}

/** Keeps several ways through one corridor apart. */
const LANES = {
  'ledger->detokenizer': 0,
  'detokenizer->ledger': -1,
  'streamer->ledger': 1,
  'ledger->scheduler': -1,
  'scheduler->ledger': 1,
};

/** Returns all ways of an edge named `from->to`; none for an edge within a room. */
export function waysOf(plan, edge) {
  const [from, to] = edge.split('->');
  if (!to || from === 'compiler' || from === 'device' || edge === 'door->scheduler'
    || edge === 'door->encoder_cache') return [];
  const [x, y] = plan.outside.door;
  const starts = from === 'door' ? [box(x, y, 0, 0)] : roomsOf(plan, from);
  const ends = roomsOf(plan, to);
  const lane = LANES[edge] ?? 0;
  const aisle = corridor(plan, from, to, lane);
  // On a phone they come in from above.
  if (plan.isNarrow && edge === 'door->input') return ends.map((room) => drop(room, room.y - 22, room.y));
  const way = (a, b) => (aisle === null ? straight(a, b) : around(a, b, aisle, lane));
  // A detokenizer speaks to the streamer of its own shard.
  if (starts.length > 1 && starts.length === ends.length) return starts.map((start, i) => way(start, ends[i]));
  return starts.flatMap((start) => ends.map((end) => way(start, end)));
}

/** Returns the ways out: from each streamer to the clients. */
export function waysOut(plan) {
  const [x, y] = plan.outside.clients;
  if (plan.isNarrow) {
    return roomsOf(plan, 'streamer').map((room) => drop(room, room.y + room.h, room.y + room.h + 20));
  }
  return roomsOf(plan, 'streamer').map((room) => straight(room, box(x, y, 0, 0)));
}
