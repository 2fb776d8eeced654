// The tabs, the lamp in the corner, and the views that get each snapshot.

import { startChat } from './chat.js';
import { $, h, say } from './dom.js';
import { seenFrom } from './engines.js';
import { onSnapshot, start } from './feed.js';
import { HouseView } from './house.js';
import { MemoryView } from './memory.js';
import { short } from './numbers.js';
import { History, news } from './rates.js';
import { startSearch } from './search.js';
import { loadModels } from './settings.js';
import { startTheme } from './theme.js';
import { TrafficView } from './traffic.js';

const NAMES = ['chat', 'search', 'house', 'memory', 'traffic'];
const views = { house: new HouseView(), memory: new MemoryView(), traffic: new TrafficView() };
const history = new History();
let shown = 'chat';
/** The index of the engine whose parts are shown. */
let engine = 0;
let last = null;
let lastPoint = null;

function show(name) {
  shown = name;
  for (const one of NAMES) {
    const tab = $(`tab-${one}`);
    tab.setAttribute('aria-selected', one === name);
    tab.tabIndex = one === name ? 0 : -1;
    $(`view-${one}`).hidden = one !== name;
  }
  document.body.dataset.view = name;
  document.title = `${$(`tab-${name}`).textContent} · Playhouse`;
  if (last) views[name]?.draw(last, lastPoint, history);
}

/** Returns the views of the model's work: all but a chat that it cannot hold. */
const open = () => NAMES.filter((name) => !$(`tab-${name}`).hidden);

function route() {
  const name = location.hash.replace(/^#\/?/, '');
  // The skip links lead into the document: the view stays.
  if (!['main', 'ask'].includes(name)) show(open().includes(name) ? name : open()[0]);
}

/** Shows the tabs of the model's work. */
function fit({ generates, compares }) {
  const wasHidden = [$('tab-chat').hidden, $('tab-search').hidden];
  $('tab-chat').hidden = !generates;
  $('tab-search').hidden = !compares;
  if (wasHidden[0] !== !generates || wasHidden[1] !== !compares) route();
}

/** Shows the tab at once: `hashchange` comes later, and a second key may come before it. */
function go(name) {
  show(name);
  location.hash = `#/${name}`;
}

function steer(event) {
  const names = open();
  const at = names.indexOf(shown);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const name = names[(next + names.length) % names.length];
  go(name);
  $(`tab-${name}`).focus();
}

/** Lets the user choose among several engines. */
function offer(count) {
  $('engine-choice').hidden = count < 2;
  if ($('engine').childElementCount === count) return;
  engine = Math.min(engine, count - 1);
  $('engine').replaceChildren(...Array.from({ length: count }, (_, i) => h('option', { value: i }, String(i))));
  $('engine').value = engine;
}

function chooseEngine() {
  engine = Number($('engine').value);
  history.forgetMemory();
  if (!last) return;
  last = seenFrom(last, engine);
  lastPoint = history.push(last);
  views[shown]?.draw(last, lastPoint, history);
}

function onNews(whole) {
  $('status').dataset.health = whole?.health ?? 'unknown';
  say($('status-health'), whole?.health ?? 'no connection');
  if (!whole) {
    say($('status-rate'), '');
    return;
  }
  offer(whole.engines.length);
  const snapshot = seenFrom(whole, engine);
  fit(snapshot.model);
  // Another model took the place of the first: questions name it from now on.
  if (last && last.model.name !== snapshot.model.name) loadModels().catch(() => {});
  lastPoint = history.push(snapshot);
  const rate = lastPoint.output;
  say($('status-rate'), rate > 0 ? `${short(rate)} tok/s` : '');
  views.house.note(news(last, snapshot));
  last = snapshot;
  views[shown]?.draw(snapshot, lastPoint, history);
}

for (const name of NAMES) {
  $(`tab-${name}`).addEventListener('click', () => go(name));
}
document.querySelector('.tabs').addEventListener('keydown', steer);
$('engine').addEventListener('change', chooseEngine);
window.addEventListener('hashchange', route);
window.addEventListener('resize', () => last && views[shown]?.draw(last, lastPoint, history));
startTheme();
route();
startChat();
startSearch();
onSnapshot(onNews);
start();
