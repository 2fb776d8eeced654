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
    text: 'The settings, and what outlives every actor: weights and the memory of the KV cache.',
    short: ({ actors }) => `${whole(actors.length)} actors`,
    rows: ({ actors, epoch }) => [
      ['Actors', whole(actors.length)],
      ['Replaced in all', whole(actors.reduce((sum, { restarts }) => sum + restarts, 0))],
      ['Epoch', whole(epoch)],
    ],
  },
  core: supervisor('Its rooms, and when they died lately. It has no data of a request.'),
  ingress: supervisor('Its rooms, and when they died lately. It has no data of a request.'),
  egress: supervisor('Its rooms, and when they died lately. It has no data of a request.'),
  ledger: {
    text: 'The ground state: each request’s prompt, parameters, seed and committed tokens. All else is made again from it.',
    short: ({ open_requests: open }) => count(open, 'request'),
    rows: ({ open_requests: open, totals }) => [
      ['Open requests', whole(open)],
      ['Tokens committed', short(totals.output_tokens)],
      ['Requests ended', short(totals.finished_requests)],
    ],
  },
  input: {
    text: 'One prompt at a time. When it dies, another input processor gets that prompt.',
    short: () => '',
    rows: (snapshot) => [['Prompts read, all inputs', short(edgeOf(snapshot, 'door->input'))]],
  },
  kv_cache: {
    text: 'The block tables, and which block has which tokens. Its successor begins without them, and prompts are computed again.',
    short: (snapshot) => `${short(blocks(snapshot)[0])} of ${short(blocks(snapshot)[1])}`,
    rows: (snapshot) => [
      ['Blocks held', whole(blocks(snapshot)[0])],
      ['Free, can be hit', whole(snapshot.kv_cache?.num_cached ?? 0)],
      ['All blocks', whole(blocks(snapshot)[1])],
    ],
  },
  structured_output: {
    text: 'Compiled grammars. Those that are needed again are compiled again.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'compiler->structured_output'))} made`,
    rows: (snapshot) => [['Grammars compiled', whole(edgeOf(snapshot, 'compiler->structured_output'))]],
  },
  encoder_cache: {
    text: 'Which pictures and sounds are encoded in memory. They are encoded again after its death.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'scheduler->encoder_cache'))} asked`,
    rows: (snapshot) => [['Questions of the scheduler', whole(edgeOf(snapshot, 'scheduler->encoder_cache'))]],
  },
  encoder_worker: {
    text: 'The picture or sound that it encodes. Its weights outlive it.',
    short: (snapshot) => `${short(edgeOf(snapshot, 'encoder_worker->encoder_cache'))} done`,
    rows: (snapshot) => [['Reports of encodings', whole(edgeOf(snapshot, 'encoder_worker->encoder_cache'))]],
  },
  scheduler: {
    text: 'The queues of running and waiting requests, and how far each one is computed. The ledger tells its successor.',
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
    text: 'The step that it computes. Weights and the memory of the KV cache outlive it.',
    short: ({ totals }) => count(totals.steps, 'step').replace(whole(totals.steps), short(totals.steps)),
    rows: ({ totals }) => [
      ['Steps', whole(totals.steps)],
      ['Tokens computed', short(totals.scheduled_tokens)],
      ['Of these, again', short(totals.recomputed_tokens)],
    ],
  },
  detokenizer: {
    text: 'For each request of its shard: the end of its text, in case a character or a stop string is incomplete. The ledger sends the tokens again.',
    short: () => '',
    rows: (snapshot) => [['Batches, all detokenizers', short(edgeOf(snapshot, 'ledger->detokenizer'))]],
  },
  streamer: {
    text: 'For each client of its shard: where its text goes, and what it has not read.',
    short: () => '',
    rows: (snapshot) => [['Batches, all streamers', short(edgeOf(snapshot, 'detokenizer->streamer'))]],
  },
};

/** Returns `{ text, short, rows }` for a role; the last two are functions of a snapshot. */
export const holdingsOf = (role) => HOLDS[role] ?? supervisor('');
