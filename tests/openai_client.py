"""Streams a chat and a completion with OpenAI's own client, and holds them against whole answers.

    openai_client.py BASE_URL

Exits 3 where the client is not installed.
"""

import sys

try:
    import openai
except ImportError as error:
    print(f"no openai client: {error}")
    sys.exit(3)

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
model = client.models.list().data[0].id
greedy = {"model": model, "max_tokens": 24, "temperature": 0}
usage = {"stream": True, "stream_options": {"include_usage": True}}

chat = greedy | {"messages": [{"role": "user", "content": "Hello there"}]}
whole = client.chat.completions.create(**chat)
text, finish, counted = "", None, None
for chunk in client.chat.completions.create(**chat, **usage):
    counted = chunk.usage or counted
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert text and text == whole.choices[0].message.content, (text, whole)
assert finish == whole.choices[0].finish_reason, finish
assert counted.completion_tokens == whole.usage.completion_tokens > 0, counted
assert counted.prompt_tokens == whole.usage.prompt_tokens > 0, counted

prompt = greedy | {"prompt": "Once upon a time", "logprobs": 2}
whole = client.completions.create(**prompt)
text, tokens, counted = "", [], None
for chunk in client.completions.create(**prompt, **usage):
    counted = chunk.usage or counted
    for choice in chunk.choices:
        text += choice.text
        tokens += choice.logprobs.tokens
assert text and text == whole.choices[0].text, (text, whole)
assert tokens == whole.choices[0].logprobs.tokens, tokens
assert counted.total_tokens == whole.usage.total_tokens, counted

try:
    client.chat.completions.create(**chat | {"top_p": 2})
except openai.BadRequestError as error:
    assert error.param == "top_p", error
else:
    raise AssertionError("top_p = 2 was taken")
try:
    client.completions.create(**prompt | {"model": "nobody"})
except openai.NotFoundError as error:
    assert error.param == "model", error
else:
    raise AssertionError("an unknown model was taken")
print("streamed a chat and a completion with openai", openai.__version__)
