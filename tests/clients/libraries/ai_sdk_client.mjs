// Chats, calls tools, makes objects and embeds with Vercel's AI SDK.
//
//   node ai_sdk_client.mjs BASE_URL POOLING_URL KEY

import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  APICallError,
  embedMany,
  generateText,
  jsonSchema,
  Output,
  stepCountIs,
  streamText,
  tool,
} from 'ai';
import { z } from 'zod';

const [url, poolingUrl, key] = process.argv.slice(2);

const serve = (baseURL, apiKey = key) =>
  createOpenAICompatible({
    name: 'playhouse',
    baseURL: `${baseURL}/v1`,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
const model = serve(url)('demo');
const greedy = { model, temperature: 0, maxOutputTokens: 64, maxRetries: 0 };
const prompt = 'Hello there';
const question = 'What is the weather in Saltmere?';
const tools = {
  get_weather: tool({
    description: 'Get the weather in a city.',
    inputSchema: jsonSchema({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
    }),
    execute: async () => ({ weather: 'rainy', degrees: 7 }),
  }),
};

async function chats() {
  const whole = await generateText({ ...greedy, prompt });
  assert.ok(whole.text.length > 0 && whole.usage.outputTokens > 0);
  assert.equal(whole.finishReason, 'stop');
  const streamed = streamText({ ...greedy, prompt });
  let text = '';
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.deepEqual(await streamed.usage, whole.usage);
  assert.equal(await streamed.finishReason, 'stop');
  const told = await generateText({
    model: serve(url).completionModel('demo'),
    prompt: 'Once upon a time',
    maxOutputTokens: 8,
    temperature: 0,
  });
  assert.ok(told.text.length > 0 && told.usage.outputTokens <= 8);
}

async function callsTools() {
  const asked = { ...greedy, prompt: question, tools, stopWhen: stepCountIs(3) };
  const whole = await generateText(asked);
  assert.equal(whole.steps.length, 2);
  assert.equal(whole.steps[0].finishReason, 'tool-calls');
  assert.deepEqual(whole.steps[0].toolCalls[0].input, { city: 'Saltmere' });
  assert.equal(whole.steps[0].toolResults[0].output.weather, 'rainy');
  assert.match(whole.text, /rainy/);
  const streamed = streamText(asked);
  let text = '';
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.deepEqual((await streamed.steps)[0].toolCalls[0].input, { city: 'Saltmere' });
  const forced = await generateText({ ...greedy, prompt, tools, toolChoice: 'required' });
  assert.equal(forced.toolCalls[0].toolName, 'get_weather');
}

async function makesObjects() {
  const person = z.object({ name: z.string().max(12), age: z.number().int().min(0).max(120) });
  const output = Output.object({ schema: person });
  const asked = { ...greedy, prompt: 'Anna is 8 years old.', output };
  const whole = (await generateText(asked)).output;
  assert.ok(person.safeParse(whole).success, JSON.stringify(whole));
  const streamed = streamText(asked);
  let last;
  for await (const part of streamed.partialOutputStream) last = part;
  assert.deepEqual(last, whole);
}

async function embeds() {
  const values = ['The curtain rose.', 'It rained.'];
  const made = await embedMany({ model: serve(poolingUrl).embeddingModel('demo'), values });
  assert.equal(made.embeddings.length, 2);
  assert.ok(made.usage.tokens > 0);
  for (const vector of made.embeddings) {
    const length = vector.reduce((sum, x) => sum + x * x, 0);
    assert.ok(Math.abs(length - 1) < 1e-3, `${length}`);
  }
}

async function waitUntilIdle() {
  for (let tries = 0; tries < 400; tries++) {
    const answer = await fetch(`${url}/load`, { headers: { Authorization: `Bearer ${key}` } });
    if ((await answer.json()).server_load === 0) return;
    await wait(50);
  }
  assert.fail('a request goes on without its client');
}

async function errors() {
  const fails = (asked, statusCode, words) =>
    assert.rejects(generateText({ ...greedy, prompt, ...asked }), (error) => {
      assert.ok(APICallError.isInstance(error), `${error}`);
      assert.equal(error.statusCode, statusCode);
      assert.match(error.message, words);
      return true;
    });
  await fails({ topP: 2 }, 400, /top_p/);
  await fails({ model: serve(url)('nobody') }, 404, /nobody/);
  await fails({ model: serve(url, 'wrong')('demo') }, 401, /./);
  const providerOptions = { playhouse: { ignore_eos: true } };
  const long = { ...greedy, prompt, maxOutputTokens: 3500, providerOptions };
  const timeout = generateText({ ...long, abortSignal: AbortSignal.timeout(200) });
  await assert.rejects(timeout, { name: 'TimeoutError' });
  await waitUntilIdle();
  const controller = new AbortController();
  const cut = streamText({ ...long, abortSignal: controller.signal });
  const kinds = new Set();
  for await (const part of cut.fullStream) {
    kinds.add(part.type);
    if (part.type === 'text-delta') controller.abort();
  }
  assert.ok(kinds.has('abort') && !kinds.has('finish'), [...kinds].join());
  await waitUntilIdle();
}

await chats();
await callsTools();
await makesObjects();
await embeds();
await errors();
