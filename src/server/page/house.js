// The supervision tree as a house: a room for each actor. A light shows that its actor is alive.
// Messages walk from room to room, as many as there are.

import { request } from './api.js';
import { $, h, mayMove, say, svg } from './dom.js';
import { CORE } from './engines.js';
import { holdingsOf } from './holds.js';
import { duration, short, whole } from './numbers.js';
import { ROLES, idOf, nameOf, planOf, shortName, waysOf, waysOut } from './plan.js';

const NARROW = matchMedia('(max-width: 700px)');
/** An actor that works on one message for this long is reported. */
const BUSY_MS = 500;
const MAX_EVENTS = 30;
/** A room that is narrower has its button below its name. */
const WIDTH_MIN = 110;
/** A room that is lower has two lines of text. */
const HEIGHT_MIN = 80;
/** The ground in front of the house. */
const ICONS = {
  in: 'M4 5h16v11H11l-4 4v-4H4z',
  out: 'M4 5h16v11h-3v4l-4-4H4zM8 9h8M8 12.500h5',
};
const HOWS = {
  panic: (name) => `you made ${name} panic`,
  kill: (name) => `you killed ${name}`,
  hang: (name) => `you made ${name} hang`,
};

export class HouseView {
  #rooms = new Map();
  #flows = [];
  #shape = '';
  #chosen = 'scheduler/0';
  #snapshot = null;
  #frame = 0;

  /** Draws the current state. */
  draw(snapshot, point) {
    this.#snapshot = snapshot;
    this.point = point;
    const { engine, has_chaos: hasChaos } = snapshot;
    const shape = JSON.stringify([NARROW.matches, hasChaos, engine, snapshot.actors.map(idOf)]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      const [role] = this.#chosen.split('/');
      if (CORE.has(role)) this.#chosen = idOf({ role, index: engine });
      this.#build(snapshot);
    }
    for (const actor of snapshot.actors) this.#drawRoom(actor, snapshot);
    for (const flow of this.#flows) {
      flow.rate = flow.isOut ? point.output : (point.edges.get(flow.edge) ?? 0) / flow.share;
      const isOfChosen = flow.edge.split('->').includes(this.#chosen.split('/')[0]);
      flow.line.setAttribute('class', `flow${flow.rate > 0 ? ' busy' : ''}${isOfChosen ? ' chosen' : ''}`);
      flow.line.style.strokeWidth = flow.rate > 0 ? 1.5 + Math.min(2.5, Math.log10(1 + flow.rate)) : 1;
    }
    this.smoke.setAttribute('class', `smoke${point.steps > 0 ? ' busy' : ''}`);
    say(this.epoch, `epoch ${snapshot.epoch}`);
    this.#card();
    if ($('actor-table-box').open) this.#tables();
    if (mayMove()) this.#frame ||= requestAnimationFrame((now) => this.#move(now, now));
  }

  /** Records an event. */
  note(news) {
    const clock = new Date().toLocaleTimeString('en-GB');
    for (const { kind, text } of news) {
      $('events').prepend(h('li', { class: kind }, h('time', null, clock), ' ', text));
    }
    while ($('events').childElementCount > MAX_EVENTS) $('events').lastChild.remove();
  }

  #build(snapshot) {
    const plan = planOf(snapshot.actors, NARROW.matches, snapshot.engine);
    const [left, top, width, height] = plan.view;
    this.#rooms.clear();
    this.smoke = svg('g', { class: 'smoke' }, [0, 1, 2].map((i) => svg('circle', {
      cx: plan.chimney.x + plan.chimney.w / 2, cy: plan.chimney.y - 6, r: plan.isNarrow ? 5 : 8, class: `puff puff${i}`,
    })));
    this.epoch = svg('text', {
      class: 'epoch', x: plan.isNarrow ? 200 : 520, y: plan.rooms.get('root/0').y - 12,
    });
    const outside = (key, text, icon) => {
      const [x, y] = plan.outside[key];
      return svg('g', { class: 'outside', transform: `translate(${x - 12} ${y - 12})` },
        svg('title', null, text), svg('rect', { x: -8, y: -8, width: 40, height: 40, rx: 20 }), svg('path', { d: icon }));
    };
    const drawing = svg('svg', {
      viewBox: plan.view.join(' '),
      role: 'group',
      'aria-label': `The supervision tree of ${snapshot.model.name}, drawn as a house`,
    },
    patterns(),
    svg('circle', { class: 'sky', cx: left + plan.sky[0], cy: plan.sky[1], r: plan.isNarrow ? 16 : 26 }),
    svg('circle', { class: 'sky-shade', cx: left + plan.sky[0] + 11, cy: plan.sky[1] - 7, r: plan.isNarrow ? 14 : 23 }),
    svg('rect', { class: 'earth', x: left, y: plan.ground, width, height: top + height - plan.ground, rx: 14 }),
    svg('path', { class: 'grass', d: `M${left + 8} ${plan.ground}H${left + width - 8}` }),
    rect('cellar', plan.cellar, { rx: 6 }),
    this.smoke,
    rect('chimney', plan.chimney),
    rect('walls', plan.walls),
    svg('path', { class: 'roof', d: plan.roof }),
    svg('path', { class: 'roof shingles', d: plan.roof, fill: 'url(#shingles)' }),
    plan.wings.map((wing) => rect('wing', wing, { rx: 4 })),
    this.epoch,
    snapshot.actors.map((actor) => this.#roomOf(actor, plan, snapshot)),
    plan.more.map(({ x, y, text }) => svg('text', { class: 'more num', x, y }, text)),
    this.#flowsOf(plan, snapshot),
    plan.isNarrow ? null : outside('door', 'Clients come in here', ICONS.in),
    plan.isNarrow ? null : outside('clients', 'Text goes out here', ICONS.out));
    $('drawing').replaceChildren(drawing);
  }

  #flowsOf(plan, snapshot) {
    this.#flows = [];
    const add = (edge, ways, isOut) => ways.map((d) => {
      const line = svg('path', { class: 'flow', d, 'data-edge': edge });
      this.#flows.push({ edge, line, isOut, share: ways.length, rate: 0, at: 0 });
      return line;
    });
    return svg('g', { class: 'flows', 'aria-hidden': 'true' },
      snapshot.edges.map(({ edge }) => add(edge, waysOf(plan, edge), false)),
      add('out', waysOut(plan), true));
  }

  #roomOf(actor, plan, snapshot) {
    const id = idOf(actor);
    const room = plan.rooms.get(id);
    if (!room) return null;
    // The rooms of an engine are all of one.
    const count = CORE.has(actor.role) ? 1 : snapshot.actors.filter(({ role }) => role === actor.role).length;
    const isPlaque = room.h < 40;
    const name = nameOf(actor, count);
    const text = (kind, x, y) => svg('text', { class: kind, x, y });
    const hasButton = snapshot.has_chaos && actor.parent;
    const first = room.y + (isPlaque ? room.h / 2 + 6 : 24);
    const parts = {
      title: text('name', room.x + 11, first),
      holds: text('holds num', room.x + 11, first + 24),
      state: text('state num', room.x + 11, room.y + room.h - 11),
      restarts: isPlaque
        ? text('restarts at-end num', room.x + room.w - (hasButton ? 34 : 11), first)
        : text('restarts num', room.x + 11, first + 47),
    };
    parts.title.textContent = plan.isNarrow || isPlaque ? shortName(name) : name;
    parts.button = svg('g', {
      class: 'press',
      tabindex: 0,
      role: 'button',
      'data-room': id,
      onclick: () => this.#choose(id),
      onkeydown: (event) => press(event, () => this.#choose(id)),
    }, rect('light', room, { rx: 5 }), hasButton && room.w < WIDTH_MIN ? null : iconOf(actor.role, room));
    // The button's label has the same content: the text beside it is only for the eyes.
    const told = svg('g', { class: 'told-in-room', 'aria-hidden': 'true' }, parts.title, parts.holds, parts.state, parts.restarts);
    const strike = hasButton ? this.#strikeButton(actor, name, room, isPlaque) : null;
    parts.group = svg('g', { class: `room${isPlaque ? ' plaque' : ''}` }, parts.button, told, strike);
    this.#rooms.set(id, { ...parts, name, isPlaque, isSmall: !isPlaque && room.h < HEIGHT_MIN, isTight: room.h < 100, isLow: hasButton && room.w < WIDTH_MIN });
    return parts.group;
  }

  #strikeButton(actor, name, room, isPlaque) {
    const isLow = !isPlaque && room.w < WIDTH_MIN;
    const [x, y] = [room.x + room.w - 18, isLow ? room.y + room.h - 17 : room.y + (isPlaque ? room.h / 2 : 18)];
    const strike = () => this.#strike(actor, 'kill');
    return svg('g', {
      class: 'strike',
      role: 'button',
      tabindex: 0,
      'aria-label': `Kill ${name}`,
      'data-kill': idOf(actor),
      onclick: strike,
      onkeydown: (event) => press(event, strike),
    },
    svg('title', null, `Kill ${name}`),
    svg('circle', { cx: x, cy: y, r: 11 }),
    svg('path', { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }));
  }

  async #strike(actor, how) {
    const name = this.#rooms.get(idOf(actor))?.name ?? actor.role;
    this.#choose(idOf(actor));
    try {
      await request('chaos/kill', { body: { role: actor.role, index: actor.index, how } });
      this.note([{ kind: 'strike', text: HOWS[how](name) }]);
    } catch (error) {
      this.note([{ kind: 'problem', text: `${name} was not struck: ${error.message}` }]);
    }
  }

  #drawRoom(actor, snapshot) {
    const room = this.#rooms.get(idOf(actor));
    if (!room) return;
    const isStuck = actor.busy_ms > BUSY_MS;
    const state = actor.state === 'dead' ? 'dead' : isStuck ? 'busy' : 'alive';
    room.group.dataset.state = state;
    room.group.dataset.chosen = idOf(actor) === this.#chosen;
    const told = state === 'dead' ? 'gone' : isStuck ? `busy for ${duration(actor.busy_ms)}` : heartbeat(actor);
    const queue = actor.mailbox_depth ? `, ${whole(actor.mailbox_depth)} in the mailbox` : '';
    const mail = actor.mailbox_depth ? ` · ✉ ${whole(actor.mailbox_depth)}` : '';
    const restarts = actor.restarts ? `↻ ${whole(actor.restarts)}` : '';
    const holds = holdingsOf(actor.role).short(snapshot);
    const isInLine = room.isSmall || room.isTight;
    // Two lines have room for what matters most.
    const hasHeart = state !== 'alive' || !room.isLow;
    const line = room.isSmall && state === 'alive' && holds ? holds : (hasHeart ? told : '') + mail;
    if (!room.isPlaque) say(room.state, line + (isInLine && restarts ? ` · ${restarts}` : ''));
    say(room.holds, room.isSmall || room.isPlaque ? '' : holds);
    say(room.restarts, isInLine && !room.isPlaque ? '' : restarts);
    room.button.setAttribute('aria-label',
      `${room.name}: ${state}, restarts: ${actor.restarts}${queue}`);
    room.button.setAttribute('aria-pressed', idOf(actor) === this.#chosen);
  }

  #choose(id) {
    this.#chosen = id;
    this.#card();
    for (const actor of this.#snapshot.actors) this.#drawRoom(actor, this.#snapshot);
  }

  /** Returns the facts about the chosen room. */
  #card() {
    const { actors, has_chaos: hasChaos } = this.#snapshot;
    const actor = actors.find((one) => idOf(one) === this.#chosen) ?? actors[0];
    const shape = `${idOf(actor)}/${hasChaos}`;
    if ($('room').dataset.shape !== shape) {
      $('room').dataset.shape = shape;
      this.#buildCard(actor, hasChaos);
    }
    const facts = {
      state: actor.state,
      replaced: times(actor.restarts),
      mailbox: whole(actor.mailbox_depth),
      heartbeat: `${duration(actor.heartbeat_age_ms)} ago`,
      busy: actor.busy_ms === null ? 'no' : `for ${duration(actor.busy_ms)}`,
    };
    for (const [name, value] of Object.entries(facts)) say(this.facts[name], value);
    const held = holdingsOf(actor.role).rows(this.#snapshot);
    held.forEach(([, value], i) => say(this.held.children[2 * i + 1], value));
    const rows = [...this.point.edges].filter(([edge]) => edge.split('->').includes(actor.role));
    this.mail.replaceChildren(...rows.map(([edge, rate]) => h('li', { class: rate ? null : 'idle' },
      h('span', null, edge.replace('->', ' → ').replaceAll('_', ' ')),
      h('span', { class: 'num' }, `${short(rate)}/s`))));
  }

  #buildCard(actor, hasChaos) {
    const { name } = this.#rooms.get(idOf(actor)) ?? { name: actor.role };
    this.facts = {};
    const fact = (key, label) => {
      this.facts[key] = h('dd', { class: 'num' });
      return [h('dt', null, label), this.facts[key]];
    };
    this.mail = h('ul', { class: 'mail' });
    const holdings = holdingsOf(actor.role);
    this.held = h('dl', { class: 'held' }, holdings.rows(this.#snapshot).map(([label]) => [h('dt', null, label), h('dd', { class: 'num' })]));
    const buttons = Object.keys(HOWS).map((how) => h('button', {
      class: 'danger',
      type: 'button',
      data: { how },
      onclick: () => this.#strike(actor, how),
    }, { panic: 'Panic', kill: 'Kill', hang: 'Hang' }[how]));
    $('room').replaceChildren(...[
      h('h2', null, name),
      h('p', { class: 'note' }, ROLES[actor.role]?.[1] ?? ''),
      hasChaos && actor.parent
        ? h('div', { class: 'row strikes', role: 'group', 'aria-label': `Break ${name}` }, buttons)
        : h('p', { class: 'note' }, actor.parent
          ? 'A server started with --allow-chaos lets you break this room and watch it come back.'
          : 'The root cannot be struck: its end is the engine’s.'),
      h('h3', null, 'Holds'),
      h('p', null, holdings.text),
      this.held.childElementCount ? this.held : null,
      h('h3', null, 'State'),
      h('dl', null, fact('state', 'It is'), fact('replaced', 'Replaced'), fact('mailbox', 'Mailbox'),
        fact('heartbeat', 'Heartbeat'), fact('busy', 'At a message')),
      h('h3', null, 'Messages'),
      this.mail,
    ].filter(Boolean));
  }

  #tables() {
    const head = (...names) => h('thead', null, h('tr', null, names.map((name) => h('th', { scope: 'col' }, name))));
    const row = (first, ...cells) => h('tr', null, h('th', { scope: 'row' }, first),
      cells.map((cell) => h('td', { class: 'num' }, cell)));
    const { actors, edges } = this.#snapshot;
    $('actor-table').replaceChildren(
      head('Actor', 'Supervisor', 'State', 'Replaced', 'Mailbox', 'Heartbeat'),
      h('tbody', null, actors.map((one) => row(`${one.role} ${one.index}`, one.parent ?? '', one.state,
        whole(one.restarts), whole(one.mailbox_depth), duration(one.heartbeat_age_ms)))));
    $('edge-table').replaceChildren(
      head('Messages', 'A second', 'In all'),
      h('tbody', null, edges.map(({ edge, messages }) =>
        row(edge, short(this.point.edges.get(edge) ?? 0), whole(messages)))));
  }

  /** Moves messages. Stops when the view is left, or when no message moves. */
  #move(now, before) {
    this.#frame = 0;
    if ($('view-house').hidden || document.hidden || !mayMove()) return;
    const seconds = Math.min(0.1, (now - before) / 1000);
    for (const flow of this.#flows) {
      if (!flow.rate) continue;
      flow.at -= seconds * (14 + 26 * Math.log10(1 + flow.rate));
      flow.line.style.strokeDashoffset = flow.at.toFixed(1);
    }
    this.#frame = requestAnimationFrame((next) => this.#move(next, now));
  }
}

const rect = (name, { x, y, w, h: height }, more) =>
  svg('rect', { class: name, x, y, width: w, height, ...more });

/** Returns the object on the wall, if there is room for it. */
function iconOf(role, room) {
  const d = ROLES[role]?.[2];
  if (!d || room.h < 50) return null;
  const size = room.h > 80 && room.w > 140 ? 1.5 : 1;
  return svg('path', {
    class: 'picture',
    d,
    transform: `translate(${room.x + room.w - 24 * size - 10} ${room.y + room.h - 24 * size - 8}) scale(${size})`,
  });
}

/** Tiles for the roof. */
function patterns() {
  return svg('defs', null, svg('pattern', {
    id: 'shingles', width: 26, height: 24, patternUnits: 'userSpaceOnUse',
  },
  svg('path', { class: 'shingle', d: 'M0 0q6.500 14 13 0q6.500 14 13 0M-13 12q6.500 14 13 0q6.500 14 13 0q6.500 14 13 0q6.500 14 13 0' })));
}

const times = (count) => ['never', 'once', 'twice'][count] ?? `${whole(count)} times`;

const heartbeat = (actor) => `♥ ${duration(actor.heartbeat_age_ms)}`;

function press(event, act) {
  if (event.key !== 'Enter' && event.key !== ' ') return;
  event.preventDefault();
  event.stopPropagation();
  act();
}
