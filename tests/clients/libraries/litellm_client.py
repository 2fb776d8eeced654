"""Chats, calls tools and embeds with litellm, as provider of vLLM servers and of OpenAI's.

    litellm_client.py BASE_URL POOLING_URL KEY
"""

import asyncio
import json
import os
import sys

# Otherwise it asks the network for a list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from served import (
    HELLO,
    MANY_TOKENS,
    PERSON,
    WEATHER,
    WEATHER_TOOL,
    get_weather,
    raises,
    wait_until_idle,
)

url, pooling_url, key = sys.argv[1:]
litellm.suppress_debug_info = True
there = {"api_base": url + "/v1", "api_key": key}
hello = [{"role": "user", "content": HELLO}]


def chat(model):
    greedy = there | {"model": model, "temperature": 0, "max_tokens": 24}
    whole = litellm.completion(**greedy, messages=hello)
    text, usage, finish = "", None, None
    streamed = litellm.completion(
        **greedy, messages=hello, stream=True, stream_options={"include_usage": True}
    )
    for chunk in streamed:
        usage = getattr(chunk, "usage", None) or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text and text == whole.choices[0].message.content, (text, whole)
    assert finish == whole.choices[0].finish_reason, finish
    assert usage.completion_tokens == whole.usage.completion_tokens > 0, usage
    assert usage.prompt_tokens == whole.usage.prompt_tokens > 0, usage


def tools(model):
    messages = [{"role": "user", "content": WEATHER}]
    asked = there | {"model": model, "temperature": 0, "tools": [WEATHER_TOOL]}
    called = litellm.completion(**asked, messages=messages).choices[0]
    assert called.finish_reason == "tool_calls", called
    call = called.message.tool_calls[0]
    assert call.function.name == "get_weather" and call.id, call
    arguments = json.loads(call.function.arguments)
    assert arguments == {"city": "Saltmere"}, arguments

    chunks = list(litellm.completion(**asked, messages=messages, stream=True))
    built = litellm.stream_chunk_builder(chunks, messages=messages).choices[0]
    assert built.message.tool_calls[0].function == call.function, built
    assert built.finish_reason == "tool_calls", built

    result = {"role": "tool", "tool_call_id": call.id, "content": get_weather(**arguments)}
    history = [*messages, called.message.model_dump(), result]
    went_on = litellm.completion(**asked, messages=history).choices[0]
    assert "rainy" in went_on.message.content and not went_on.message.tool_calls, went_on


def structured(model):
    schema = {"name": "person", "schema": PERSON, "strict": True}
    made = litellm.completion(
        **there,
        model=model,
        messages=hello,
        max_tokens=64,
        response_format={"type": "json_schema", "json_schema": schema},
    )
    person = json.loads(made.choices[0].message.content)
    assert set(person) == {"name", "age"} and 0 <= person["age"] <= 120, person


def errors(model):
    asked = there | {"model": model, "messages": hello}
    with raises(litellm.BadRequestError, "top_p"):
        litellm.completion(**asked, top_p=2)
    with raises(litellm.NotFoundError, "nobody"):
        litellm.completion(**asked | {"model": model.split("/")[0] + "/nobody"})
    with raises(litellm.AuthenticationError):
        litellm.completion(**asked | {"api_key": "wrong"})
    with raises(litellm.ContextWindowExceededError):
        litellm.completion(**asked | {"messages": [{"role": "user", "content": "a b " * 5000}]})
    long = {"max_tokens": MANY_TOKENS, "extra_body": {"ignore_eos": True}}
    with raises(litellm.Timeout):
        litellm.completion(**asked, **long, timeout=0.2, max_retries=0)
    wait_until_idle(url, key)

    async def leaves():
        stream = await litellm.acompletion(**asked, **long, stream=True)
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(leaves())
    wait_until_idle(url, key)


def others():
    greedy = there | {"model": "text-completion-openai/demo", "temperature": 0}
    told = litellm.text_completion(**greedy, prompt="Once upon a time", max_tokens=8)
    assert told.choices[0].text and told.usage.completion_tokens == 8, told
    answered = litellm.responses(**there, model="openai/demo", input=HELLO, max_output_tokens=24)
    assert answered.output[0].content[0].text, answered

    pools = {"api_base": pooling_url + "/v1", "api_key": key, "model": "hosted_vllm/demo"}
    texts = ["The curtain rose.", "It rained."]
    vectors = litellm.embedding(**pools, input=texts)
    lengths = [sum(x * x for x in item["embedding"]) for item in vectors.data]
    assert len(lengths) == 2 and all(abs(length - 1) < 1e-3 for length in lengths), lengths
    assert vectors.usage.prompt_tokens > 0, vectors.usage
    ranked = litellm.rerank(**pools, query=texts[1], documents=texts, top_n=1)
    assert [result["index"] for result in ranked.results] == [1], ranked


for model in ["hosted_vllm/demo", "openai/demo"]:
    chat(model)
    tools(model)
    structured(model)
    errors(model)
others()
