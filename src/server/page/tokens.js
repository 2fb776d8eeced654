// An answer token by token: a warmer colour means a less probable token. The alternatives appear on
// hover and on focus. One token can be reached by tab, and arrow keys go to the others.

import { h } from './dom.js';

const tip = h('div', { class: 'tip', role: 'tooltip', id: 'tip', hidden: true });
document.body.append(tip);

const percent = (logprob) => {
  const share = Math.exp(logprob) * 100;
  if (share > 0 && share < 0.1) return '< 0.1 %';
  return `${share.toFixed(share < 10 ? 1 : 0)} %`;
};

/** Makes white space visible. */
const visible = (text) => text.replaceAll('\n', '⏎').replaceAll('\t', '⇥').replaceAll(' ', '␣') || '∅';

/** Returns 0 for the most probable tokens, 5 for the least. */
const surprise = (logprob) => Math.min(5, Math.floor(-logprob / 0.55));

function showTip(token, entry) {
  const row = ({ token: text, logprob }) => h('li', { class: text === entry.token ? 'chosen' : null },
    h('code', null, visible(text)), h('span', { class: 'num' }, percent(logprob)));
  const others = entry.top_logprobs ?? [];
  const isListed = others.some(({ token: text }) => text === entry.token);
  tip.replaceChildren(h('ol', null, (isListed ? others : [entry, ...others]).map(row)));
  tip.hidden = false;
  token.setAttribute('aria-describedby', 'tip');
  const box = token.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tip;
  const below = box.bottom + height + 8 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.left))}px`;
  tip.style.top = `${Math.max(8, below ? box.bottom + 6 : box.top - height - 6)}px`;
}

function hideTip(token) {
  tip.hidden = true;
  token.removeAttribute('aria-describedby');
}

function steer(event) {
  const token = event.target.closest('.token');
  const next = { ArrowRight: token?.nextElementSibling, ArrowLeft: token?.previousElementSibling }[event.key];
  if (event.key === 'Escape' && token) hideTip(token);
  if (!next) return;
  event.preventDefault();
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** Returns an element that `add` appends tokens to, each with `logprob` and `top_logprobs`. */
export function tokenText() {
  const element = h('p', { class: 'tokens', dir: 'auto', onkeydown: steer });
  const add = (entry) => {
    const token = h('span', {
      class: `token s${surprise(entry.logprob)}`,
      tabindex: element.childElementCount ? -1 : 0,
    }, entry.token);
    token.addEventListener('mouseenter', () => showTip(token, entry));
    token.addEventListener('focus', () => showTip(token, entry));
    token.addEventListener('mouseleave', () => hideTip(token));
    token.addEventListener('blur', () => hideTip(token));
    element.append(token);
  };
  return { element, add };
}
