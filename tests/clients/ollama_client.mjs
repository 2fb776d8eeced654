// Chats, generates and calls tools with Ollama's own client.
//
//   node ollama_client.mjs BASE_URL
//
// Exits with 3 if the client is not installed.

import assert from 'node:assert/strict';

const { Ollama } = await import('ollama').catch((error) => {
  console.log(`no ollama client: ${error.message}`);
  process.exit(3);
});

const client = new Ollama({ host: process.argv[2] });
const { models } = await client.list();
const { model } = models[0];
const options = { temperature: 0, num_predict: 24 };
const messages = [{ role: 'user', content: 'Hello there' }];

assert.equal((await client.ps()).models[0].model, model);
assert.ok((await client.show({ model })).capabilities.includes('completion'));

const whole = await client.chat({ model, messages, options });
let text = '';
let last;
for await (const part of await client.chat({ model, messages, options, stream: true })) {
  text += part.message.content;
  last = part;
}
assert.ok(text.length > 0);
assert.equal(text, whole.message.content);
assert.equal(last.done, true);
assert.equal(last.eval_count, whole.eval_count);

const prompt = { model, prompt: 'Once upon a time', raw: true, options };
let told = '';
for await (const part of await client.generate({ ...prompt, stream: true })) told += part.response;
assert.equal(told, (await client.generate(prompt)).response);

const format = {
  type: 'object',
  properties: { n: { type: 'integer', maximum: 99 } },
  required: ['n'],
  additionalProperties: false,
};
const made = await client.chat({ model, messages, format, options: { num_predict: 48 } });
assert.ok(Number.isInteger(JSON.parse(made.message.content).n));

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Get the weather in a city',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', description: 'The name of the city' } },
      required: ['city'],
    },
  },
};
const question = [{ role: 'user', content: 'What is the weather in Oslo?' }];
const called = await client.chat({ model, messages: question, tools: [weather], options: { temperature: 0 } });
assert.equal(called.message.tool_calls[0].function.name, 'get_weather');

await assert.rejects(client.chat({ model: 'nothing', messages }), { status_code: 404 });
await assert.rejects(client.pull({ model: 'llama3' }), { status_code: 501 });
await assert.rejects(client.embed({ model, input: 'a' }), /does not support embeddings/);

// A stream that is aborted ends, and the server goes on.
const endless = await client.chat({ model, messages, options: { num_predict: -1 }, stream: true });
setTimeout(() => endless.abort(), 50);
await assert.rejects(async () => {
  for await (const part of endless) if (part.done) throw new Error('it ended by itself');
});
assert.equal((await client.chat({ model, messages, options })).message.content, whole.message.content);
