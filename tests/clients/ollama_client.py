"""Chats, generates and calls tools, or embeds, with Ollama's own client.

    ollama_client.py BASE_URL generate | embed

Exits with 3 if the client is not installed.
"""

import json
import sys

try:
    import ollama
except ImportError as error:
    print(f"no ollama client: {error}")
    sys.exit(3)

client = ollama.Client(host=sys.argv[1])
model = client.list().models[0].model
greedy = {"temperature": 0, "num_predict": 24}


def embed():
    two = client.embed(model=model, input=["The curtain rose.", "It rained."])
    assert len(two.embeddings) == 2 and two.prompt_eval_count > 4, two
    norm = sum(x * x for x in two.embeddings[0])
    assert abs(norm - 1) < 1e-3, norm
    alone = client.embed(model=model, input="It rained.").embeddings[0]
    assert max(abs(a - b) for a, b in zip(alone, two.embeddings[1])) < 1e-5
    old = client.embeddings(model=model, prompt="It rained.").embedding
    assert max(abs(a - b) for a, b in zip(alone, old)) < 1e-5
    try:
        client.chat(model=model, messages=[{"role": "user", "content": "Hi"}])
    except ollama.ResponseError as error:
        assert error.status_code == 400 and "does not support chat" in error.error, error
    else:
        raise AssertionError("a model that pools has chatted")


def generate():
    assert client.ps().models[0].model == model
    shown = client.show(model)
    assert "completion" in shown.capabilities and shown.template, shown
    messages = [{"role": "user", "content": "Hello there"}]
    whole = client.chat(model=model, messages=messages, options=greedy)
    text, last = "", None
    for part in client.chat(model=model, messages=messages, options=greedy, stream=True):
        text += part.message.content or ""
        last = part
    assert text and text == whole.message.content, (text, whole)
    assert last.done and last.done_reason == whole.done_reason, last
    assert last.eval_count == whole.eval_count > 0 < last.prompt_eval_count, last
    assert last.total_duration > 0 and last.created_at, last

    prompt = {"model": model, "prompt": "Once upon a time", "raw": True, "options": greedy}
    whole = client.generate(**prompt)
    text = "".join(part.response for part in client.generate(**prompt, stream=True))
    assert text and text == whole.response, (text, whole)
    asked = client.generate(model=model, prompt="Hello", system="Be brief.", options=greedy)
    assert asked.response, asked

    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
              "required": ["n"], "additionalProperties": False}
    made = client.chat(model=model, messages=messages, format=schema, options={"num_predict": 48})
    assert isinstance(json.loads(made.message.content)["n"], int), made
    made = client.generate(model=model, prompt="JSON", format="json", options={"num_predict": 200})
    if made.done_reason == "stop":
        assert isinstance(json.loads(made.response), dict), made

    def get_weather(city: str) -> str:
        """Get the weather in a city.

        Args:
            city: The name of the city
        """
        return f"It rains in {city}."

    question = [{"role": "user", "content": "What is the weather in Oslo?"}]
    called = client.chat(model=model, messages=question, tools=[get_weather], options={"temperature": 0})
    calls = called.message.tool_calls
    assert calls and calls[0].function.name == "get_weather", called
    assert isinstance(calls[0].function.arguments["city"], str), called
    streamed = [call for part in client.chat(model=model, messages=question, tools=[get_weather],
                                             options={"temperature": 0}, stream=True)
                for call in part.message.tool_calls or []]
    assert [call.function for call in streamed] == [call.function for call in calls], streamed
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather("Oslo")}
    went_on = client.chat(model=model, messages=[*question, called.message, result],
                          tools=[get_weather], options=greedy)
    assert went_on.message.content and not went_on.message.tool_calls, went_on

    begun = [*messages, {"role": "assistant", "content": "Hello"}]
    assert client.chat(model=model, messages=begun, options=greedy).message.content is not None
    for refused, status in [
        (lambda: client.chat(model="nothing", messages=messages), 404),
        (lambda: client.chat(model=model, messages=messages, options={"top_p": 2.0}), 400),
        (lambda: client.pull("llama3"), 501),
        (lambda: client.delete("llama3"), 501),
        (lambda: client.embed(model=model, input="a"), 400),
    ]:
        try:
            refused()
        except ollama.ResponseError as error:
            assert error.status_code == status and error.error, error
        else:
            raise AssertionError(f"{status} was expected")


{"generate": generate, "embed": embed}[sys.argv[2]]()
