"""Tests the Responses API with OpenAI's own client.

    responses_client.py PLAIN_URL READING_URL

PLAIN_URL serves a model without parsers. READING_URL accepts the keys `first` and `second`. It reads
the first character of an answer as a thought. If the request has tools, it reads the rest as a call
of `echo`. Exits with 3 if the client is not installed.
"""

import json
import sys
import time

try:
    import openai
    from pydantic import BaseModel, Field
except ImportError as error:
    print(f"no openai client: {error}")
    sys.exit(3)

PATIENCE = 60
calls = []


def connect(url, key):
    hooks = {"request": [calls.append]}
    http = openai.DefaultHttpxClient(event_hooks=hooks)
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, http_client=http)


client, reading, other = connect(sys.argv[1], "none"), connect(sys.argv[2], "first"), connect(sys.argv[2], "second")
model = client.models.list().data[0].id
greedy = {"model": model, "max_output_tokens": 24, "temperature": 0}
question = greedy | {"input": "Tell me a story."}
ECHO = {
    "type": "function",
    "name": "echo",
    "description": "Says it again.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}


def refused(kind, param, call):
    """Returns the message of the error that `call` raises."""
    try:
        call()
    except kind as error:
        assert error.param == param, (error.param, param)
        return error.message
    raise AssertionError(f"no {kind.__name__} about {param}")


def create(by=client, **fields):
    return by.responses.create(**question | fields)


def until(status, response):
    """Waits until the response has this status. Returns it."""
    deadline = time.monotonic() + PATIENCE
    while response.status != status:
        assert time.monotonic() < deadline and response.status in ("queued", "in_progress"), response
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


def one_piece():
    whole = create(metadata={"for": "test"}, user="me", prompt_cache_key="key")
    assert whole.id.startswith("resp_") and whole.object == "response" and whole.model == model
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert whole.error is None and whole.background is False and whole.store is True
    assert (whole.temperature, whole.max_output_tokens) == (0, 24) and 0 < whole.top_p <= 1
    assert (whole.tools, whole.tool_choice, whole.parallel_tool_calls) == ([], "none", True)
    assert whole.text.format.type == "text" and whole.truncation == "disabled"
    assert whole.metadata == {"for": "test"} and whole.user == "me"
    usage = whole.usage
    assert usage.output_tokens == 24 and usage.input_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens_details.cached_tokens >= 0
    assert usage.output_tokens_details.reasoning_tokens == 0
    (message,) = whole.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "incomplete")
    (part,) = message.content
    assert part.type == "output_text" and part.annotations == [] and part.text == whole.output_text
    # The same up to the end: a response that ends by itself is complete.
    stop = whole.output_text.strip()[3:6]
    ended = create(extra_body={"stop": stop})
    assert ended.status == "completed" and ended.completed_at >= ended.created_at
    assert ended.incomplete_details is None and stop not in ended.output_text
    assert whole.output_text.startswith(ended.output_text)
    # Instructions are a part of the prompt. Other forms of the same prompt give the same answer.
    told = create(instructions="Be brief.")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question["input"]}]
    again = create(input=messages)
    assert told.usage.input_tokens == again.usage.input_tokens > usage.input_tokens
    assert told.instructions == "Be brief." and told.output_text == again.output_text
    chat = client.chat.completions.create(model=model, messages=messages, max_tokens=24, temperature=0)
    assert told.output_text == chat.choices[0].message.content
    return whole


def streamed(whole):
    events = list(create(stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    middle = ["output_text.delta"] * kinds.count("output_text.delta")
    assert len(middle) > 1, kinds
    assert kinds == [
        *["created", "in_progress", "output_item.added", "content_part.added"],
        *middle,
        *["output_text.done", "content_part.done", "output_item.done", "completed"],
    ], kinds
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    last = events[-1].response
    assert last.status == "incomplete" and last.output_text == whole.output_text
    assert last.usage.output_tokens == 24 and last.id == events[0].response.id
    assert client.responses.retrieve(last.id).output_text == whole.output_text
    # The client adds up the events itself.
    with client.responses.stream(**question) as stream:
        snapshot = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        assert snapshot[-1] == whole.output_text
        assert stream.get_final_response().output_text == whole.output_text


def logprobs():
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    (message,) = create(**fields).output
    rows = message.content[0].logprobs
    assert len(rows) == 24 and all(len(row.top_logprobs) == 2 for row in rows)
    assert all(row.top_logprobs[0].logprob == row.logprob <= 0 for row in rows), "greedy"
    events = list(create(**fields, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    told = [row.token for event in deltas for row in event.logprobs]
    assert told == [row.token for row in rows][: len(told)] and len(told) > 12, told


def conversations(whole):
    assert client.responses.retrieve(whole.id) == whole
    (item,) = client.responses.input_items.list(whole.id).data
    assert (item.type, item.role, item.content[0].text) == ("message", "user", question["input"])
    second = create(previous_response_id=whole.id, input="And then?", instructions="Go on.")
    items = [{"role": "user", "content": question["input"]}, *whole.output, {"role": "user", "content": "And then?"}]
    by_hand = create(input=items, instructions="Go on.")
    assert second.usage.input_tokens == by_hand.usage.input_tokens > whole.usage.input_tokens
    assert second.output_text == by_hand.output_text and second.previous_response_id == whole.id
    third = create(previous_response_id=second.id, input="The end?")
    assert third.usage.input_tokens > second.usage.input_tokens
    listed = list(client.responses.input_items.list(third.id, order="asc", limit=2))
    assert len(listed) == 5 and listed[1].id == whole.output[0].id, listed
    assert [item.id for item in client.responses.input_items.list(third.id)] == [item.id for item in reversed(listed)]
    by_name = create(input=[{"type": "item_reference", "id": whole.output[0].id}, *items[2:]])
    without = create(input=[*whole.output, *items[2:]])
    assert by_name.usage.input_tokens == without.usage.input_tokens
    client.responses.delete(third.id)
    refused(openai.NotFoundError, "response_id", lambda: client.responses.retrieve(third.id))
    unkept = create(store=False)
    assert unkept.store is False
    refused(openai.NotFoundError, "response_id", lambda: client.responses.retrieve(unkept.id))
    refused(openai.NotFoundError, "previous_response_id", lambda: create(previous_response_id=unkept.id))
    refused(openai.NotFoundError, "input", lambda: create(input=[{"type": "item_reference", "id": unkept.output[0].id}]))


def in_the_background(whole):
    begun = create(background=True)
    assert begun.status in ("queued", "in_progress", "incomplete") and begun.background is True
    assert until("incomplete", begun).output_text == whole.output_text
    long = {"background": True, "max_output_tokens": 3500, "extra_body": {"ignore_eos": True}}
    endless = create(**long)
    message = refused(openai.BadRequestError, "previous_response_id", lambda: create(previous_response_id=endless.id))
    assert endless.id in message
    cancelled = client.responses.cancel(endless.id)
    assert cancelled.status == "cancelled" and cancelled.usage.output_tokens < 3500
    assert client.responses.cancel(endless.id) == cancelled == client.responses.retrieve(endless.id)
    client.responses.delete(create(**long).id)
    # A response goes on when its stream is closed, and can be read again from any event.
    stream = create(background=True, stream=True)
    begun = [next(stream) for _ in range(6)]
    stream.close()
    kinds = [event.type for event in begun[:3]]
    assert kinds == ["response.created", "response.queued", "response.in_progress"], kinds
    first = begun[-1].sequence_number
    rest = list(client.responses.retrieve(begun[0].response.id, stream=True, starting_after=first))
    assert [event.sequence_number for event in rest] == list(range(first + 1, first + 1 + len(rest)))
    assert rest[-1].type == "response.completed" and rest[-1].response.output_text == whole.output_text
    again = list(client.responses.retrieve(rest[-1].response.id, stream=True))
    assert again[first + 1 :] == rest and again[0].type == "response.created"
    refused(openai.BadRequestError, "stream", lambda: list(client.responses.retrieve(whole.id, stream=True)))
    refused(openai.BadRequestError, "response_id", lambda: client.responses.cancel(whole.id))


def tools_and_thoughts():
    plain = create(reading)
    thought, message = plain.output
    assert (thought.type, thought.summary) == ("reasoning", [])
    assert (thought.content[0].type, len(thought.content[0].text)) == ("reasoning_text", 1)
    assert message.type == "message" and plain.output_text == message.content[0].text
    asked = create(reading, tools=[ECHO], reasoning={"effort": "low", "summary": "auto"})
    thought, call = asked.output
    assert asked.tools[0].name == "echo" and asked.tool_choice == "auto"
    assert (call.type, call.name, call.status) == ("function_call", "echo", "completed") and call.call_id
    assert '"text"' in call.arguments and asked.output_text == ""
    events = list(create(reading, tools=[ECHO], stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    once = list(dict.fromkeys(kinds))
    assert once == [
        *["created", "in_progress", "output_item.added", "content_part.added"],
        *["reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"],
        *["function_call_arguments.delta", "function_call_arguments.done", "completed"],
    ], once
    assert kinds.count("output_item.added") == kinds.count("output_item.done") == 2
    deltas = [event.delta for event in events if event.type.endswith("arguments.delta")]
    assert "".join(deltas) == call.arguments == events[-1].response.output[1].arguments
    # The call's output is sent by the call's id. The conversation is in the store or in the request.
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "said"}
    stored = create(reading, previous_response_id=asked.id, input=[result], tools=[ECHO], tool_choice="none")
    items = [{"role": "user", "content": question["input"]}, *asked.output, result]
    by_hand = create(reading, input=items, tools=[ECHO], tool_choice="none")
    assert stored.output_text == by_hand.output_text != "" and stored.output[1].type == "message"
    assert stored.usage.input_tokens == by_hand.usage.input_tokens > asked.usage.input_tokens
    lost = result | {"call_id": "lost"}
    refused(openai.BadRequestError, "input", lambda: create(reading, input=[lost]))
    # A client with another key has other responses.
    refused(openai.NotFoundError, "response_id", lambda: other.responses.retrieve(asked.id))
    refused(openai.NotFoundError, "response_id", lambda: other.responses.delete(asked.id))
    refused(openai.NotFoundError, "previous_response_id", lambda: create(other, previous_response_id=asked.id))
    assert reading.responses.retrieve(asked.id) == asked


class Pet(BaseModel):
    species: str = Field(pattern="^(cat|dog)$")
    legs: int = Field(ge=0, le=4)


def structured():
    """Returns whether the server constrains outputs, as a chat request shows."""
    try:
        ask = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
        client.chat.completions.create(model=model, **ask, response_format={"type": "json_object"})
    except openai.BadRequestError as error:
        print(f"without structured outputs: {error.message}")
        return
    fields = {"model": model, "input": "A pet?", "max_output_tokens": 400}
    pet = client.responses.parse(**fields, text_format=Pet).output_parsed
    assert pet.species in ("cat", "dog") and 0 <= pet.legs <= 4, pet
    with client.responses.stream(**fields, text_format=Pet) as stream:
        assert stream.get_final_response().output_parsed.species in ("cat", "dog")
    word = {"type": "object", "properties": {"text": {"enum": ["a", "b"]}}, "required": ["text"]}
    tool = ECHO | {"parameters": word | {"additionalProperties": False}}
    for choice in ("required", {"type": "function", "name": "echo"}):
        (call,) = client.responses.create(**fields, tools=[tool], tool_choice=choice, parallel_tool_calls=False).output
        assert call.type == "function_call" and call.name == "echo", call
        assert json.loads(call.arguments) in ({"text": "a"}, {"text": "b"}), call


def errors():
    bad = openai.BadRequestError
    refused(openai.NotFoundError, "model", lambda: create(model="nobody"))
    refused(openai.NotFoundError, "response_id", lambda: client.responses.retrieve("resp_missing"))
    refused(openai.NotFoundError, "previous_response_id", lambda: create(previous_response_id="resp_missing"))
    refused(bad, "top_p", lambda: create(top_p=2))
    refused(bad, "max_output_tokens", lambda: create(max_output_tokens=0))
    refused(bad, "tool_choice", lambda: create(tool_choice="required"))
    refused(bad, "include", lambda: create(include=["weather"]))
    refused(bad, "top_logprobs", lambda: create(top_logprobs=-3))
    refused(bad, "background", lambda: create(background=True, store=False))
    refused(bad, "conversation", lambda: create(conversation="conv_1"))
    refused(bad, "max_tokens", lambda: create(extra_body={"max_tokens": 5}))
    refused(bad, "body.text.format.schema", lambda: create(text={"format": {"type": "json_schema", "name": "a"}}))
    assert "'web_search'" in refused(bad, "tools", lambda: create(tools=[{"type": "web_search"}]))
    image = {"type": "input_image", "image_url": "data:,x", "detail": "auto"}
    assert "'input_image'" in refused(bad, "input", lambda: create(input=[{"role": "user", "content": [image]}]))
    try:
        connect(sys.argv[2], "third").responses.retrieve("resp_x")
    except openai.AuthenticationError:
        return
    raise AssertionError("an unknown key was accepted")



def count():
    told = client.responses.input_tokens.count(model=model, input="Tell me a story.")
    assert told.object == "response.input_tokens"
    assert told.input_tokens == whole.usage.input_tokens
    longer = client.responses.input_tokens.count(model=model, input="Tell me a story.", instructions="Be brief.")
    assert longer.input_tokens > told.input_tokens


whole = one_piece()
streamed(whole)
logprobs()
conversations(whole)
in_the_background(whole)
tools_and_thoughts()
structured()
count()
errors()
assert len(calls) > 60, len(calls)
print(f"{len(calls)} calls with openai", openai.__version__)
