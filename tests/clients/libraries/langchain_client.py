"""Chats, calls tools and makes objects with LangChain's ChatOpenAI.

    langchain_client.py BASE_URL POOLING_URL KEY
"""

import asyncio
import sys
from typing import Annotated

import openai
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field
from served import HELLO, MANY_TOKENS, WEATHER, get_weather, raises, wait_until_idle

url, _, key = sys.argv[1:]
there = {"model": "demo", "base_url": url + "/v1", "api_key": key, "max_retries": 0}
model = ChatOpenAI(**there, temperature=0, max_tokens=64)


class Person(BaseModel):
    """A person."""

    # In an open schema the demo model goes on with other fields.
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=12)]
    age: Annotated[int, Field(ge=0, le=120)]


def chats():
    messages = [SystemMessage("Be brief."), HumanMessage(HELLO)]
    whole = model.invoke(messages)
    assert whole.content and whole.usage_metadata["output_tokens"] > 0, whole
    assert whole.response_metadata["finish_reason"] == "stop", whole.response_metadata
    streamed = None
    for chunk in model.stream(messages, stream_usage=True):
        streamed = chunk if streamed is None else streamed + chunk
    assert isinstance(streamed, AIMessageChunk) and streamed.content == whole.content, streamed
    assert streamed.usage_metadata == whole.usage_metadata, streamed.usage_metadata
    several = model.batch([HELLO, "Who are you?", HELLO])
    assert several[0].content == several[2].content != several[1].content, several
    rated = model.bind(logprobs=True, top_logprobs=2).invoke(HELLO)
    entries = rated.response_metadata["logprobs"]["content"]
    assert len(entries) == rated.usage_metadata["output_tokens"], entries
    assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 2 for entry in entries)


def tools(model):
    model = model.bind_tools([tool(get_weather)])
    messages = [HumanMessage(WEATHER)]
    called = model.invoke(messages)
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [
        ("get_weather", {"city": "Saltmere"})
    ], called
    streamed = None
    for chunk in model.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    calls = [(call["name"], call["args"]) for call in streamed.tool_calls]
    assert calls == [("get_weather", {"city": "Saltmere"})], streamed
    result = tool(get_weather).invoke(called.tool_calls[0])
    went_on = model.invoke([*messages, called, result])
    assert "rainy" in went_on.text and not went_on.tool_calls, went_on
    forced = model.bind(tool_choice="required").invoke(HELLO)
    assert forced.tool_calls[0]["name"] == "get_weather", forced


def structured():
    for method in ["json_schema", "function_calling"]:
        made = model.with_structured_output(Person, method=method).invoke("Anna is 8 years old.")
        assert isinstance(made, Person) and 0 <= made.age <= 120, (method, made)
    options = {"method": "json_schema", "strict": True, "include_raw": True}
    strict = model.with_structured_output(Person, **options)
    made = strict.invoke("Anna is 8 years old.")
    assert isinstance(made["parsed"], Person) and made["parsing_error"] is None, made


def errors():
    with raises(openai.BadRequestError, "top_p"):
        ChatOpenAI(**there, top_p=2).invoke(HELLO)
    with raises(openai.NotFoundError, "nobody"):
        ChatOpenAI(**there | {"model": "nobody"}).invoke(HELLO)
    with raises(openai.AuthenticationError):
        ChatOpenAI(**there | {"api_key": "wrong"}).invoke(HELLO)
    long = there | {"max_tokens": MANY_TOKENS, "extra_body": {"ignore_eos": True}}
    with raises(openai.APITimeoutError):
        ChatOpenAI(**long, timeout=0.2).invoke(HELLO)
    wait_until_idle(url, key)

    async def leaves():
        task = asyncio.ensure_future(ChatOpenAI(**long).ainvoke(HELLO))
        await asyncio.sleep(0.2)
        assert not task.done(), "it ended by itself"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leaves())
    wait_until_idle(url, key)


chats()
tools(model)
tools(ChatOpenAI(**there, temperature=0, use_responses_api=True))
structured()
errors()
