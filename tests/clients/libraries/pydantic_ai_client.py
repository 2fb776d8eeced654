"""Runs agents of pydantic-ai, with tools and typed outputs, on chat completions and responses.

    pydantic_ai_client.py BASE_URL POOLING_URL KEY
"""

import asyncio
import sys
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import Agent, Embedder, ModelAPIError, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from served import HELLO, MANY_TOKENS, RAINY, WEATHER, get_weather, raises, wait_until_idle

url, pooling_url, key = sys.argv[1:]
greedy = {"temperature": 0.0, "max_tokens": 64}


class Person(BaseModel):
    """A person."""

    # In an open schema the demo model goes on with other fields.
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=12)]
    age: Annotated[int, Field(ge=0, le=120)]


def provider(base_url=url, key=key):
    import openai

    client = openai.AsyncOpenAI(base_url=base_url + "/v1", api_key=key, max_retries=0)
    return OpenAIProvider(openai_client=client)


async def chats(model):
    agent = Agent(model, instructions="Be brief.", model_settings=greedy)
    whole = await agent.run(HELLO)
    assert whole.output and whole.usage.output_tokens > 0 < whole.usage.input_tokens, whole
    async with agent.run_stream(HELLO) as stream:
        text = "".join([part async for part in stream.stream_text(delta=True, debounce_by=None)])
    assert text == whole.output, (text, whole)
    assert stream.usage.output_tokens == whole.usage.output_tokens, stream.usage
    went_on = await agent.run("Who are you?", message_history=whole.all_messages())
    assert went_on.output != whole.output, went_on


async def tools(model):
    agent = Agent(model, tools=[get_weather], model_settings=greedy)
    whole = await agent.run(WEATHER)
    parts = [part for message in whole.all_messages() for part in message.parts]
    returned = [part.content for part in parts if isinstance(part, ToolReturnPart)]
    assert returned == [RAINY] and "rainy" in whole.output, whole.all_messages()
    async with agent.run_stream(WEATHER) as stream:
        assert await stream.get_output() == whole.output


async def structured(model):
    for output in [ToolOutput(Person), NativeOutput(Person)]:
        made = await Agent(model, output_type=output, model_settings=greedy).run(
            "Anna is 8 years old."
        )
        assert isinstance(made.output, Person) and 0 <= made.output.age <= 120, made


async def embeds():
    model = OpenAIEmbeddingModel("demo", provider=provider(pooling_url))
    texts = ["The curtain rose.", "It rained."]
    made = await Embedder(model).embed_documents(texts)
    assert len(made.embeddings) == 2 and made.usage.input_tokens > 0, made
    assert abs(sum(x * x for x in made.embeddings[0]) - 1) < 1e-3, made


async def errors(kind):
    async def fails(status, model, **settings):
        try:
            await Agent(model, model_settings=settings).run(HELLO)
        except ModelHTTPError as error:
            assert error.status_code == status, error
            return error.body
        raise AssertionError(f"{status} was expected")

    there = kind("demo", provider=provider())
    assert "top_p" in str(await fails(400, there, top_p=2.0))
    assert "nobody" in str(await fails(404, kind("nobody", provider=provider())))
    await fails(401, kind("demo", provider=provider(key="wrong")))
    long = {"max_tokens": MANY_TOKENS, "extra_body": {"ignore_eos": True}}
    with raises(ModelAPIError, "timed out"):
        await Agent(there, model_settings=long | {"timeout": 0.2}).run(HELLO)
    wait_until_idle(url, key)
    task = asyncio.ensure_future(Agent(there, model_settings=long).run(HELLO))
    await asyncio.sleep(0.2)
    assert not task.done(), "it ended by itself"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    wait_until_idle(url, key)


async def main():
    for kind in [OpenAIChatModel, OpenAIResponsesModel]:
        model = kind("demo", provider=provider())
        await chats(model)
        await tools(model)
        await structured(model)
        await errors(kind)
    await embeds()


asyncio.run(main())
