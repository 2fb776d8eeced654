// A conversation that the user takes part in: questions, answers in progress, branches. It keeps
// itself in the store, and tells its view what changed. No code here touches the document.

import { events } from './events.js';
import { explain } from './errors.js';
import { blank, counts, fold, hasContent } from './fold.js';
import { messagesOf } from './parts.js';
import { Tree, newId, placeOf, titleOf, wanted } from './tree.js';

/** An answer in progress is stored at most this often. */
const SAVE_MS = 2000;

const quiet = { onPath() {}, onNode() {}, onSave() {}, onLoss() {} };

/** Returns a conversation without messages. */
export const fresh = (system = '') =>
  ({ id: newId(), title: '', created: Date.now(), updated: Date.now(), current: null, system });

export class Talk {
  /** What the view wants to know. */
  view = quiet;
  /** The answer in progress: its node, and the controller that stops it. */
  running = null;
  /** The last error, with `retry`. */
  problem = null;
  #store;
  #request;
  #isAdding = false;

  constructor(conversation, nodes, store, request) {
    this.conversation = conversation;
    this.tree = new Tree(nodes);
    this.#store = store;
    this.#request = request;
  }

  get path() {
    return this.tree.path(this.conversation.current);
  }

  /** Returns the calls that wait for their results. */
  get wanted() {
    return this.running ? [] : wanted(this.path);
  }

  async #save(...nodes) {
    if (!this.tree.size && !this.conversation.title) return;
    this.conversation.updated = Date.now();
    await this.#keep(() => this.#store.save(this.conversation, nodes));
  }

  /** Changes the store. Where it is full or gone, the conversation goes on without it. */
  async #keep(change) {
    try {
      await change();
      this.view.onSave();
    } catch (error) {
      this.view.onLoss(error);
    }
  }

  /** Returns whether an answer is in progress, or about to be. */
  get isBusy() {
    return this.running !== null || this.#isAdding;
  }

  async #add(parent, fields) {
    this.#isAdding = true;
    const node = this.tree.add(parent, { at: Date.now(), ...fields });
    this.conversation.current = node.id;
    this.conversation.title ||= titleOf(fields.text || fields.attachments?.[0]?.name || '');
    this.problem = null;
    this.view.onPath();
    await this.#save(node);
    this.#isAdding = false;
    return node;
  }

  /** Asks a question. */
  async say(text, attachments, fields) {
    await this.#add(placeOf(this.tree, this.conversation.current), { role: 'user', text, attachments });
    await this.answer(fields);
  }

  /** Requests an answer to the last message. `shown` is the leaf to show if none comes. */
  async answer(fields, shown = this.conversation.current) {
    if (this.running) return;
    const { current } = this.conversation;
    const node = this.tree.add(current, { ...blank(fields.model), at: Date.now() });
    if (fields.logprobs) node.logprobs = [];
    this.conversation.current = node.id;
    const retry = (again) => {
      this.conversation.current = current;
      return this.answer(again, this.tree.get(shown) ? shown : current);
    };
    await this.#run(node, this.tree.path(current), fields, retry);
    if (hasContent(node)) return;
    this.tree.remove(node.id);
    this.conversation.current = this.tree.get(shown) ? shown : current;
    await this.#keep(() => this.#store.removeMessages(this.conversation.id, [node.id]));
    await this.#save();
    this.view.onPath();
  }

  /** Requests another answer in place of `id`. */
  async regenerate(id, fields) {
    const shown = this.conversation.current;
    this.conversation.current = this.tree.get(id).parent;
    await this.answer(fields, shown);
  }

  /** Requests the rest of the answer `id`. */
  async goOn(id, fields) {
    const node = this.tree.get(id);
    const rest = { ...fields, continue_final_message: true, add_generation_prompt: false };
    // The probabilities of the text so far may be unknown.
    if (node.logprobs && !fields.logprobs) delete node.logprobs;
    await this.#run(node, this.tree.path(id), rest, (again) => this.goOn(id, again));
  }

  async #run(node, path, fields, retry) {
    const controller = new AbortController();
    this.running = { node, controller };
    this.problem = null;
    node.told = counts(performance.now());
    this.view.onPath();
    try {
      const body = {
        ...fields,
        messages: await messagesOf(path, this.conversation.system),
        stream: true,
        stream_options: { include_usage: true, continuous_usage_stats: true },
      };
      const response = await this.#request('v1/chat/completions', { body, signal: controller.signal });
      await this.#read(response, node);
    } catch (error) {
      if (controller.signal.aborted) node.told.reason = 'stopped';
      else this.problem = { ...explain(error), retry };
    }
    this.running = null;
    node.calls = node.calls.filter(Boolean);
    delete node.told.began;
    if (hasContent(node)) await this.#save(node);
    this.view.onPath();
  }

  async #read(response, node) {
    let saved = performance.now();
    for await (const data of events(response)) {
      if (data === '[DONE]') return;
      const now = performance.now();
      fold(node, node.told, JSON.parse(data), now);
      this.view.onNode(node);
      if (now - saved < SAVE_MS || !hasContent(node)) continue;
      saved = now;
      this.#save(node);
    }
    throw Object.assign(new Error('the stream has no end'), { name: 'StreamEnded' });
  }

  /** Ends the answer in progress. */
  stop() {
    this.running?.controller.abort();
  }

  /** Makes a branch with another text. A question is asked again. */
  async edit(id, text, fields) {
    const { role, parent, attachments, model } = this.tree.get(id);
    if (role === 'assistant') {
      await this.#add(parent, { ...blank(model), text, told: { reason: 'edited' } });
      // No answer follows.
      this.view.onSave();
      return;
    }
    await this.#add(parent, { role, text, attachments });
    await this.answer(fields);
  }

  /** Shows the branch of `id`. */
  async choose(id) {
    this.conversation.current = this.tree.leaf(id);
    this.problem = null;
    this.view.onPath();
    await this.#save();
  }

  /** Removes a message and all that follow it. */
  async remove(id) {
    const ids = this.tree.below(id).map((node) => node.id);
    if (this.running && ids.includes(this.running.node.id)) this.stop();
    const { current } = this.conversation;
    const next = this.tree.remove(id);
    if (ids.includes(current)) this.conversation.current = next;
    this.problem = null;
    this.view.onPath();
    await this.#keep(() => this.#store.removeMessages(this.conversation.id, ids));
    await this.#save();
  }

  /** Adds the result of a call. The last result that is wanted requests the next answer. */
  async giveResult(call, text, fields) {
    await this.#add(this.conversation.current, { role: 'tool', text, callId: call.id });
    if (this.wanted.length) this.view.onSave();
    else await this.answer(fields);
  }

  async rename(title) {
    this.conversation.title = title;
    await this.#save();
    this.view.onPath();
  }

  /** Sets the system prompt, which goes with the conversation. */
  async instruct(system) {
    this.conversation.system = system;
    if (this.tree.size) await this.#save();
  }
}
