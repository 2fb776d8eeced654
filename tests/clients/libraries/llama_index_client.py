"""Chats, calls tools, makes objects and embeds with LlamaIndex's OpenAILike.

    llama_index_client.py BASE_URL POOLING_URL KEY
"""

import asyncio
import sys
from typing import Annotated

import openai
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict, Field
from served import HELLO, MANY_TOKENS, WEATHER, get_weather, raises, wait_until_idle

url, pooling_url, key = sys.argv[1:]
there = {"api_base": url + "/v1", "api_key": key, "model": "demo", "context_window": 4096}
there |= {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
llm = OpenAILike(**there, temperature=0.0, max_tokens=64)
hello = [ChatMessage(role="user", content=HELLO)]


class Person(BaseModel):
    """A person."""

    # In an open schema the demo model goes on with other fields.
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=12)]
    age: Annotated[int, Field(ge=0, le=120)]


def chats():
    whole = llm.chat(hello)
    assert whole.message.content and whole.raw.usage.completion_tokens > 0, whole
    parts = list(llm.stream_chat(hello, stream_options={"include_usage": True}))
    assert "".join(part.delta or "" for part in parts) == whole.message.content, parts
    assert parts[-1].raw.usage == whole.raw.usage, parts[-1].raw
    plain = OpenAILike(**there | {"is_chat_model": False}, temperature=0.0, max_tokens=8)
    told = plain.complete("Once upon a time")
    assert told.text and told.text == list(plain.stream_complete("Once upon a time"))[-1].text, told


async def tools():
    tool = FunctionTool.from_defaults(get_weather, description="Get the weather in a city.")
    called = llm.chat_with_tools([tool], user_msg=WEATHER)
    call = llm.get_tool_calls_from_response(called)[0]
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Saltmere"}), call
    last = list(llm.stream_chat_with_tools([tool], user_msg=WEATHER))[-1]
    streamed = llm.get_tool_calls_from_response(last)[0]
    assert streamed.tool_kwargs == call.tool_kwargs, streamed
    forced = llm.chat_with_tools([tool], user_msg=HELLO, tool_required=True)
    assert llm.get_tool_calls_from_response(forced), forced
    # The agent streams, runs the tool, and feeds its result back.
    answer = await FunctionAgent(tools=[tool], llm=llm).run(user_msg=WEATHER)
    called = [call.tool_kwargs for call in answer.tool_calls]
    assert "rainy" in str(answer) and called == [{"city": "Saltmere"}], answer


def structured():
    about = PromptTemplate("{name} is 8 years old.")
    for uses_schema in [True, False]:
        llm = OpenAILike(**there, max_tokens=64, should_use_structured_outputs=uses_schema)
        made = llm.structured_predict(Person, about, name="Anna")
        assert isinstance(made, Person) and 0 <= made.age <= 120, (uses_schema, made)


def embeds():
    pools = {"api_base": pooling_url + "/v1", "api_key": key, "model_name": "demo"}
    model = OpenAILikeEmbedding(**pools, embed_batch_size=2)
    texts = ["The curtain rose.", "It rained.", "A stage."]
    vectors = model.get_text_embedding_batch(texts)
    assert len(vectors) == 3 and abs(sum(x * x for x in vectors[0]) - 1) < 1e-3, vectors
    again = model.get_query_embedding(texts[1])
    assert max(abs(a - b) for a, b in zip(again, vectors[1])) < 1e-5


def errors():
    with raises(openai.BadRequestError, "top_p"):
        llm.chat(hello, top_p=2)
    with raises(openai.NotFoundError, "nobody"):
        OpenAILike(**there | {"model": "nobody"}).chat(hello)
    with raises(openai.AuthenticationError):
        OpenAILike(**there | {"api_key": "wrong"}).chat(hello)
    long = {"max_tokens": MANY_TOKENS, "additional_kwargs": {"extra_body": {"ignore_eos": True}}}
    with raises(openai.APITimeoutError):
        OpenAILike(**there, **long, timeout=0.2).chat(hello)
    wait_until_idle(url, key)

    async def leaves():
        stream = await OpenAILike(**there, **long).astream_chat(hello)
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(leaves())
    wait_until_idle(url, key)


chats()
asyncio.run(tools())
structured()
embeds()
errors()
