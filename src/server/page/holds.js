// What each actor holds: its state in words, what is lost with it, and the numbers that a snapshot
// has of it. Pure.

import { short, whole } from './numbers.js';

const edgeOf = (snapshot, name) => snapshot.edges.find(({ edge }) => edge === name)?.messages ?? 0;
const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

/** Returns the blocks that requests hold, and all blocks. */
function blocks({ kv_cache: cache }) {
  return cache ? [cache.num_blocks - cache.num_free, cache.num_blocks] : [0, 0];
}

const supervisor = (text) => ({ text, short: () => '', rows: () => [] });

const HOLDS = {
  root: {
    text: 'What must outlive every actor: the ledger’s data, the weights, and the memory of the KV cache.',
    short: ({ actors }) => `${whole(actors.length)} actors`,
    rows: ({ actors, epoch }) => [
      ['Actors', whole(actors.length)],
      ['Replaced in all', whole(actors.reduce((sum, { restarts }) => sum + restarts, 0))],
      ['Epoch', whole(epoch)],
    ],
  },
  core: supervisor('Its rooms, and when they died lately. Of the requests it has nothing.'),
  ingress: supervisor('Its rooms, and when they died lately. Of the requests it has nothing.'),
  egress: supervisor('Its rooms, and when they died lately. Of the requests it has nothing.'),
  ledger: {
    text: 'The door to the ground state: each request’s prompt, parameters, seed and committed tokens. The data lives with the root, so a death of the ledger loses nothing.',
    short: ({ open_requests: open }) => count(open, 'request'),
    rows: ({ open_requests: open, totals }) => [
      ['Open requests', whole(open)],
      ['Tokens committed', short(totals.output_tokens)],
      ['Requests ended', short(totals.finished_requests)],
    ],
  },
  input: {
    text: 'The prompts that it reads; long ones take turns. When it dies, another input processor gets them.',
    short: () => '',
    rows: (snapshot) => [['Prompts read, all inputs', short(edgeOf(snapshot, 'door->input'))]],
  },
  kv_cache: {
    text: 'Block tables and reference counts. Its successor finds full blocks still cached, and the partial last block of each request.',
    short: (snapshot) => `${short(blocks(snapshot)[0])} of ${short(blocks(snapshot)[1])}`,
    rows: (snapshot) => [
      ['Blocks held', whole(blocks(snapshot)[0])],
      ['Free, can be hit', whole(snapshot.kv_cache?.num_cached ?? 0)],
      ['All blocks', whole(blocks(snapshot)[1])],
    ],
  },
  structured_output: {
    text: 'The grammars that are being compiled. The scheduler asks its successor again.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'compiler->structured_output'))} made`,
    rows: (snapshot) => [['Grammars compiled', whole(edgeOf(snapshot, 'compiler->structured_output'))]],
  },
  encoder_cache: {
    text: 'Which pictures and sounds are needed, and in which order. Its successor finds the encoded ones in their store.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'scheduler->encoder_cache'))} asked`,
    rows: (snapshot) => [['Questions of the scheduler', whole(edgeOf(snapshot, 'scheduler->encoder_cache'))]],
  },
  encoder_worker: {
    text: 'The pictures and sounds that it encodes now. Its successor gets them again.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'encoder_worker->encoder_cache'))} done`,
    rows: (snapshot) => [['Reports of encodings', whole(edgeOf(snapshot, 'encoder_worker->encoder_cache'))]],
  },
  scheduler: {
    text: 'The queues of running and waiting requests, and the steps in flight. Its successor makes them again from the ledger’s live requests.',
    short: ({ scheduler }) => {
      const [running, waiting] = [scheduler?.num_running ?? 0, scheduler?.num_waiting ?? 0];
      if (!running && !waiting) return 'idle';
      return waiting ? `${short(running)} + ${short(waiting)}` : `${short(running)} running`;
    },
    rows: ({ scheduler }) => [
      ['Running', whole(scheduler?.num_running ?? 0)],
      ['Waiting', whole(scheduler?.num_waiting ?? 0)],
      ['Step', whole(scheduler?.step ?? 0)],
    ],
  },
  worker: {
    text: 'The steps in flight. Weights and the memory of the KV cache outlive it.',
    short: ({ totals }) => count(totals.steps, 'step').replace(whole(totals.steps), short(totals.steps)),
    rows: ({ totals }) => [
      ['Steps', whole(totals.steps)],
      ['Tokens computed', short(totals.scheduled_tokens)],
      ['Of these, again', short(totals.recomputed_tokens)],
    ],
  },
  detokenizer: {
    text: 'How far the text of each request of its shard is. Its successor gets all their tokens again.',
    short: () => '',
    rows: (snapshot) => [['Batches, all detokenizers', short(edgeOf(snapshot, 'ledger->detokenizer'))]],
  },
  streamer: {
    text: 'Nothing of its own: the place where a client’s text goes knows its position.',
    short: () => '',
    rows: (snapshot) => [['Batches, all streamers', short(edgeOf(snapshot, 'detokenizer->streamer'))]],
  },
};

/** Returns `{ text, short, rows }` for a role; the last two are functions of a snapshot. */
export const holdingsOf = (role) => HOLDS[role] ?? supervisor('');
