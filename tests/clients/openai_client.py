"""Streams a chat and a completion, and calls tools, with OpenAI's own client.

    openai_client.py BASE_URL

Exits with 3 if the client is not installed.
"""

import json
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

parameters = {"type": "object", "properties": {"utc": {"type": "boolean"}}, "required": ["utc"]}
now = {"name": "now", "parameters": parameters | {"additionalProperties": False}}
asked = chat | {"tools": [{"type": "function", "function": now}], "max_tokens": 64}
named = {"type": "function", "function": {"name": "now"}}
called = client.chat.completions.create(**asked, tool_choice=named).choices[0]
call = called.message.tool_calls[0]
assert called.message.content == "" and called.finish_reason == "stop", called
assert call.function.name == "now" and set(json.loads(call.function.arguments)) == {"utc"}, call
forced = {"tool_choice": "required", "parallel_tool_calls": False}
with client.chat.completions.stream(**asked, **forced) as stream:
    called = stream.get_final_completion().choices[0]
assert called.finish_reason == "tool_calls", called
streamed = called.message.tool_calls[0]
assert streamed.function.name == "now", streamed
assert isinstance(json.loads(streamed.function.arguments)["utc"], bool), streamed
history = asked["messages"] + [
    {"role": "assistant", "content": None, "tool_calls": [streamed.model_dump()]},
    {"role": "tool", "tool_call_id": streamed.id, "content": "noon"},
]
went_on = client.chat.completions.create(**asked | {"messages": history}, tool_choice="none")
assert went_on.choices[0].message.content and not went_on.choices[0].message.tool_calls, went_on
try:
    client.chat.completions.create(**asked, tool_choice={"type": "function", "function": {"name": "later"}})
except openai.BadRequestError as error:
    assert error.param == "tool_choice", error
else:
    raise AssertionError("a tool that is not on offer was taken")

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
print("streamed a chat and a completion and called a tool with openai", openai.__version__)
