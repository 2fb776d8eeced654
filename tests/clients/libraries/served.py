"""What the scripts beside it share: the tool and the schema that they offer, and the server's load,
read without a client library."""

import contextlib
import json
import time
import urllib.request

HELLO = "Hello there"
# The demo model knows this town, and answers results of this form.
WEATHER = "What is the weather in Saltmere?"
RAINY = '{"weather": "rainy", "degrees": 7}'
# A prompt whose output is cut after these tokens only, so a client can leave before its end.
MANY_TOKENS = 3500


def get_weather(city: str) -> str:
    """Get the weather in a city.

    Args:
        city: The name of the city
    """
    return RAINY


WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def post(url, body, key):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@contextlib.contextmanager
def raises(kind, *words):
    """Passes if the body raises `kind` with a text that has all `words`."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), (word, error)
    else:
        raise AssertionError(f"expected {kind.__name__} with {words}")


def wait_until_idle(url, key):
    """Returns when the server has no open request, which the one of a client that left must not
    be."""
    deadline = time.monotonic() + 20
    while True:
        request = urllib.request.Request(url + "/load", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request) as answer:
            load = json.load(answer)["server_load"]
        if load == 0:
            return
        assert time.monotonic() < deadline, f"{load} requests go on without their clients"
        time.sleep(0.05)
