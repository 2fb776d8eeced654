"""Runs Anthropic's own client against two servers: messages whole and streamed, tools, thoughts,
counts, errors, retries.

    anthropic_client.py PLAIN_URL READING_URL

READING_URL needs the key "secret" and takes one request at a time. It reads the first character of
an answer as a thought, and the rest as a call of `echo` if the request offers that tool.

Exits with 3 if the client is not installed.
"""

import asyncio
import json
import sys
import threading

try:
    import anthropic
    import pydantic
except ImportError as error:
    print(f"no anthropic client: {error}")
    sys.exit(3)

plain_url, reading_url = sys.argv[1:3]


def connect(url, **settings):
    settings = {"api_key": "none", "timeout": 60} | settings
    return anthropic.Anthropic(base_url=url, **settings)


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def text(message):
    assert [block.type for block in message.content] == ["text"], message
    return message.content[0].text


def blocks(message):
    """Returns blocks in the form in which they were sent."""
    return [block.model_dump(exclude_unset=True, exclude={"parsed_output"}) for block in message.content]


def refused(error_class, kind, words, client, **fields):
    """Asserts that the client raises this error, with this type and these words in its message."""
    try:
        client.messages.create(**hello | fields)
    except error_class as error:
        body = error.body
        assert body["type"] == "error" and error.type == kind, body
        assert words in body["error"]["message"], body
        assert error.request_id and error.request_id == body["request_id"], body
    else:
        raise AssertionError(f"taken: {fields}")


client = connect(plain_url)
# Fields without an argument of the client go into the body unchanged.
greedy = {"temperature": 0}
hello = {
    "model": "demo", "max_tokens": 24, "extra_body": greedy, "messages": [user("Tell me a story.")]
}
weather = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"unit": {"enum": ["c", "f"]}},
        "required": ["unit"],
        "additionalProperties": False,
    },
}
echo = {"name": "echo", "input_schema": {"type": "object"}}


def whole_and_streamed():
    whole = client.messages.create(**hello)
    assert (whole.type, whole.role, whole.model) == ("message", "assistant", "demo"), whole
    assert whole.id.startswith("msg_") and text(whole), whole
    assert (whole.stop_reason, whole.stop_sequence) == ("max_tokens", None), whole
    assert whole.usage.output_tokens == 24 and whole.usage.input_tokens > 0, whole

    events = list(client.messages.create(**hello, stream=True))
    order = [event.type for event in events]
    deltas = order.count("content_block_delta")
    assert order == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas,
        "content_block_stop", "message_delta", "message_stop",
    ], order
    assert events[0].message.usage.input_tokens == whole.usage.input_tokens, events[0]

    with client.messages.stream(**hello) as stream:
        pieces = list(stream.text_stream)
        streamed = stream.get_final_message()
    assert len(pieces) > 1 and "".join(pieces) == text(whole) == text(streamed), streamed
    assert streamed.stop_reason == "max_tokens" and streamed.usage == whole.usage, streamed

    async def from_a_coroutine():
        async with anthropic.AsyncAnthropic(base_url=plain_url, api_key="none") as client:
            async with client.messages.stream(**hello) as stream:
                return await stream.get_final_text()

    assert asyncio.run(from_a_coroutine()) == text(whole)

    half = text(whole)[len(text(whole)) // 2 :]
    stopped = client.messages.create(**hello, stop_sequences=[half[:3], "never written"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", half[:3]), stopped
    assert text(whole).startswith(text(stopped)) and half[:3] not in text(stopped), stopped
    with client.messages.stream(**hello, stop_sequences=[half[:3]]) as stream:
        streamed = stream.get_final_message()
    assert (streamed.stop_sequence, text(streamed)) == (half[:3], text(stopped)), streamed


def prompts():
    def asked(**fields):
        return client.messages.create(**hello | fields)

    alone = asked()
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    as_string, as_blocks = asked(system="Be brief."), asked(system=blocks)
    assert text(as_string) == text(as_blocks) and as_string.usage == as_blocks.usage
    assert as_string.usage.input_tokens > alone.usage.input_tokens
    assert text(asked(messages=[user([{"type": "text", "text": "Tell me a story."}])])) == text(alone)

    begun = asked(messages=[*hello["messages"], assistant("General")])
    told = asked(messages=[*hello["messages"], assistant("General"), user("?")])
    assert begun.usage.input_tokens < told.usage.input_tokens, (begun, told)
    hints = {"metadata": {"user_id": "u"}, "service_tier": "auto"}
    sampling = greedy | {"top_k": 50, "top_p": 0.9}
    assert text(asked(**hints, extra_body=sampling)) == text(alone)

    def counted(**fields):
        fields = {key: hello[key] for key in ("model", "messages")} | fields
        return client.messages.count_tokens(**fields).input_tokens

    assert counted() == alone.usage.input_tokens
    offered = {"system": "Be brief.", "tools": [weather, echo]}
    told = asked(**offered, tool_choice={"type": "none"})
    assert counted(**offered, tool_choice={"type": "none"}) == told.usage.input_tokens
    assert counted() < counted(system="Be brief.") < counted(**offered)

    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"unit": "c"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    turns = lambda result: [
        user("Rain?"), assistant([thought, hidden, call]), user([result, {"type": "text", "text": "?"}]),
    ]
    lengths = set()
    for content in ({"content": "dry"}, {"content": [{"type": "text", "text": "dry"}]}):
        answer = asked(messages=turns(result | content), tools=[weather])
        lengths.add(answer.usage.input_tokens)
    assert len(lengths) == 1, lengths
    failed = counted(messages=turns(result | {"content": "dry", "is_error": True}), tools=[weather])
    assert failed > lengths.pop(), "the model is not told of an error"


def refusals():
    bad, kind = anthropic.BadRequestError, "invalid_request_error"
    image = {"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}}
    search = {"type": "web_search_20250305", "name": "web_search"}
    refused(bad, kind, "max_tokens", client, max_tokens=0)
    refused(bad, kind, "context length", client, max_tokens=100_000, stream=True)
    refused(bad, kind, "temperature", client, extra_body={"temperature": 1.5})
    refused(bad, kind, "'image' blocks are not supported", client, messages=[user([image])])
    refused(bad, kind, "web_search_20250305", client, tools=[search])
    refused(bad, kind, "budget_tokens needs", client, thinking={"type": "enabled", "budget_tokens": 9})
    refused(bad, kind, "tool_choice", client, tool_choice={"type": "any"})
    refused(bad, kind, "container", client, extra_body={"container": "a"})
    refused(anthropic.NotFoundError, "not_found_error", "nobody", client, model="nobody")
    try:
        client.messages.batches.list()
    except anthropic.NotFoundError as error:
        assert error.type == "not_found_error", error.body
    else:
        raise AssertionError("there are batches")

    raw = client.messages.with_raw_response.create(**hello, extra_headers={"x-request-id": "mine"})
    assert raw.headers["request-id"] == "mine" and raw.parse()._request_id == "mine", raw.headers
    assert client.messages.create(**hello)._request_id.startswith("req_")
    hurried = connect(plain_url, timeout=0.001, max_retries=1)
    try:
        hurried.messages.create(**hello | {"max_tokens": 500})
    except anthropic.APITimeoutError:
        pass
    else:
        raise AssertionError("500 tokens in a millisecond")


def keys():
    for stranger in (connect(reading_url), connect(reading_url, api_key=None, auth_token="wrong")):
        kind = "authentication_error"
        refused(anthropic.AuthenticationError, kind, "x-api-key", stranger)
        refused(anthropic.AuthenticationError, kind, "x-api-key", stranger, stream=True)
    for friend in (
        connect(reading_url, api_key="secret"),
        connect(reading_url, api_key=None, auth_token="secret"),
    ):
        assert friend.messages.create(**hello).content


def thoughts():
    client = connect(reading_url, api_key="secret", max_retries=5)
    adaptive = hello | {"thinking": {"type": "adaptive"}}
    whole = client.messages.create(**adaptive)
    thinking, said = whole.content
    assert thinking.type == "thinking" and len(thinking.thinking) == 1, whole
    assert thinking.signature and said.type == "text", whole
    with client.messages.stream(**adaptive) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert kinds.index("thinking") < kinds.index("signature") < kinds.index("text"), kinds
    assert blocks(streamed) == blocks(whole), (streamed, whole)
    hidden = hello | {"thinking": {"type": "adaptive", "display": "omitted"}}
    hidden = client.messages.create(**hidden).content[0]
    assert (hidden.thinking, hidden.signature) == ("", thinking.signature), hidden


def tools():
    client = connect(reading_url, api_key="secret", max_retries=5)
    offered = hello | {"tools": [echo]}
    said = client.messages.create(**offered, tool_choice={"type": "none"}).content[1]
    whole = client.messages.create(**offered, tool_choice={"type": "auto"})
    thinking, call = whole.content
    assert (thinking.type, call.type, call.name) == ("thinking", "tool_use", "echo"), whole
    assert call.id.startswith("toolu_") and call.input == {"text": said.text}, (call, said)
    with client.messages.stream(**offered) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        streamed = stream.get_final_message().content[1]
    assert len(pieces) > 1 and json.loads("".join(pieces)) == streamed.input == call.input, streamed
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "heard"}
    turns = [*offered["messages"], whole.to_param(), user([result])]
    answer = client.messages.create(**offered | {"messages": turns})
    assert answer.usage.input_tokens > whole.usage.input_tokens, answer


def retries():
    long = hello | {"max_tokens": 3000}
    settings = {"api_key": "secret", "max_retries": 0}
    with connect(reading_url, **settings) as first, connect(reading_url, **settings) as second:
        with first.messages.stream(**long) as stream:
            next(iter(stream))
            refused(anthropic.RateLimitError, "rate_limit_error", "quota", second)
            leave = threading.Timer(0.5, stream.close)
            leave.start()
            patient = second.with_options(max_retries=10)
            assert patient.messages.create(**hello).content
            leave.join()


def forced():
    """Constrained outputs are JSON although the model writes gibberish."""
    offered = hello | {"tools": [weather, echo], "max_tokens": 200}
    named = {"type": "tool", "name": "weather"}
    whole = client.messages.create(**offered, tool_choice=named)
    (call,) = whole.content
    assert (call.type, call.name, whole.stop_reason) == ("tool_use", "weather", "tool_use"), whole
    assert call.input in ({"unit": "c"}, {"unit": "f"}), call
    with client.messages.stream(**offered, tool_choice=named) as stream:
        streamed = stream.get_final_message()
    assert streamed.stop_reason == "tool_use" and streamed.content[0].input == call.input, streamed

    only = hello | {"tools": [weather | {"strict": True}], "max_tokens": 200}
    one = {"type": "any", "disable_parallel_tool_use": True}
    whole = client.messages.create(**only, tool_choice=one)
    assert [call.name for call in whole.content] == ["weather"], whole
    assert whole.stop_reason == "tool_use" and whole.content[0].input["unit"] in ("c", "f"), whole
    with client.messages.stream(**only, tool_choice=one) as stream:
        assert stream.get_final_message().content[0].input == whole.content[0].input

    schema = weather["input_schema"]
    config = {"format": {"type": "json_schema", "schema": schema}}
    roomy = hello | {"max_tokens": 200}
    answer = client.messages.create(**roomy, output_config=config)
    assert json.loads(text(answer))["unit"] in ("c", "f"), answer
    assert answer.stop_reason == "end_turn", answer

    class Verdict(pydantic.BaseModel):
        is_wet: bool

    verdict = client.messages.parse(**roomy, output_format=Verdict).parsed_output
    assert verdict.is_wet in (True, False), verdict


for part in (whole_and_streamed, prompts, refusals, keys, thoughts, tools, retries, forced):
    part()
    print(f"{part.__name__}: fine")
print(f"anthropic {anthropic.__version__}")
