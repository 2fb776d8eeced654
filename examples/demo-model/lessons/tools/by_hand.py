"""Tools and questions written by hand, as programs and people have them.

No lesson was made of them. They measure how far the lessons reach beyond their own wordings.
"""

from .. import check
from .ordinary import NO_TOOL


def _tool(name, description, required=(), **properties):
    properties = {
        key: {"type": value} if isinstance(value, str) else value
        for key, value in properties.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _described(kind, description, **more):
    return {"type": kind, "description": description, **more}


_WEATHER = _tool(
    "get_weather", "Get current temperature for a given location.", ["location"],
    location=_described("string", "City and country e.g. Bogotá, Colombia"),
)
_WEATHER_UNIT = _tool(
    "get_current_weather", "Get the current weather in a given location", ["location"],
    location=_described("string", "The city and state, e.g. San Francisco, CA"),
    unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
)
_CITY = _tool("get_weather", "Get the weather in a city.", ["city"],
              city=_described("string", "The name of the city"))
_TIME = _tool("get_current_time", "Returns the current time in a city", ["city"], city="string")
_ZONED = _tool("get_time", "Get the time in an IANA timezone", ["timezone"],
               timezone=_described("string", "e.g. America/New_York"))
_SEARCH = _tool(
    "web_search", "Search the web and return the top results.", ["query"],
    query=_described("string", "The query"),
    max_results=_described("integer", "How many results to return", default=5),
)
_CALCULATE = _tool(
    "calculate", "Perform a basic arithmetic operation", ["operation", "a", "b"],
    operation={"type": "string", "enum": ["add", "subtract", "multiply", "divide"]},
    a="number", b="number",
)
_ADD = _tool("add", "Add two integers", ["a", "b"], a="integer", b="integer")
_MULTIPLY = _tool("multiply", "Multiply two integers", ["a", "b"], a="integer", b="integer")
_MAIL = _tool(
    "send_email", "Send an email to a recipient.", ["to", "subject", "body"],
    to=_described("string", "The recipient email address."),
    subject=_described("string", "Email subject line."),
    body=_described("string", "Body of the email message."),
)


def _calls(*calls):
    return check.calls([{"name": name, "arguments": arguments} for name, arguments in calls])


_NONE = check.says(NO_TOOL.rstrip(".").removeprefix("I "))

QUESTIONS = [
    ([_WEATHER], "What is the weather like in Paris today?",
     _calls(("get_weather", {"location": "Paris"}))),
    ([_CITY], "What's the weather in Tokyo?", _calls(("get_weather", {"city": "Tokyo"}))),
    ([_CITY, _TIME], "how's the weather in Berlin right now",
     _calls(("get_weather", {"city": "Berlin"}))),
    ([_CITY], "Do I need an umbrella in London?", _calls(("get_weather", {"city": "London"}))),
    ([_CITY], "Weather in Oslo?", _calls(("get_weather", {"city": "Oslo"}))),
    ([_CITY, _SEARCH], "Is it cold in Helsinki at the moment?",
     _calls(("get_weather", {"city": "Helsinki"}))),
    ([_CITY], "Could you tell me what the weather is in Rome?",
     _calls(("get_weather", {"city": "Rome"}))),
    ([_WEATHER_UNIT], "What's the weather in Boston in celsius?",
     _calls(("get_current_weather", {"location": "Boston", "unit": "celsius"}))),
    ([_WEATHER_UNIT], "What is the weather in Chicago?",
     _calls(("get_current_weather", {"location": "Chicago"}))),
    ([_WEATHER_UNIT, _MAIL], "Tell me the weather in Denver, in Fahrenheit please.",
     _calls(("get_current_weather", {"location": "Denver", "unit": "fahrenheit"}))),
    ([_TIME], "What time is it in Tokyo?", _calls(("get_current_time", {"city": "Tokyo"}))),
    ([_TIME, _CITY], "What's the current time in Sydney?",
     _calls(("get_current_time", {"city": "Sydney"}))),
    ([_TIME], "Tell me the local time in New York.",
     _calls(("get_current_time", {"city": "New York"}))),
    ([_ZONED], "What time is it in Asia/Tokyo?", _calls(("get_time", {"timezone": "Asia/Tokyo"}))),
    ([_SEARCH], "Search the web for vegan recipes",
     _calls(("web_search", {"query": "vegan recipes"}))),
    ([_SEARCH], "Please look up the history of Rome.",
     _calls(("web_search", {"query": "the history of Rome"}))),
    ([_SEARCH, _CITY], "Find me 3 results about electric cars",
     _calls(("web_search", {"query": "electric cars", "max_results": 3}))),
    ([_SEARCH], "Can you search for cheap flights to Lisbon?",
     _calls(("web_search", {"query": "cheap flights to Lisbon"}))),
    ([_CALCULATE], "What is 17 times 23?",
     _calls(("calculate", {"operation": "multiply", "a": 17, "b": 23}))),
    ([_CALCULATE], "Divide 144 by 12.",
     _calls(("calculate", {"operation": "divide", "a": 144, "b": 12}))),
    ([_CALCULATE, _CITY], "What is 1234 minus 567?",
     _calls(("calculate", {"operation": "subtract", "a": 1234, "b": 567}))),
    ([_ADD, _MULTIPLY], "What is 3 * 12?", _calls(("multiply", {"a": 3, "b": 12}))),
    ([_ADD, _MULTIPLY], "Add 11 and 49, please.", _calls(("add", {"a": 11, "b": 49}))),
    ([_ADD, _MULTIPLY], "What is 3 * 12? Also, what is 11 + 49?",
     _calls(("multiply", {"a": 3, "b": 12}), ("add", {"a": 11, "b": 49}))),
    ([_MAIL],
     'Send an email to bob@example.com with the subject "Hello" and the body "See you soon."',
     _calls(("send_email", {"to": "bob@example.com", "subject": "Hello",
                            "body": "See you soon."}))),
    ([_MAIL, _SEARCH],
     "Email anna@example.org about Lunch saying \"Let us meet at noon\"",
     _calls(("send_email", {"to": "anna@example.org", "subject": "Lunch",
                            "body": "Let us meet at noon"}))),
    ([_CITY], "What is the weather in Paris and Berlin?",
     _calls(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Berlin"}))),
    ([_CITY], "What's the weather like in Madrid, Rome and Vienna?",
     _calls(("get_weather", {"city": "Madrid"}), ("get_weather", {"city": "Rome"}),
            ("get_weather", {"city": "Vienna"}))),
    ([_CITY, _TIME], "What is the weather in Paris and what time is it in Tokyo?",
     _calls(("get_weather", {"city": "Paris"}), ("get_current_time", {"city": "Tokyo"}))),
    ([_CITY], "Send an email to bob@example.com", _NONE),
    ([_TIME], "What's the weather in Paris?", _NONE),
    ([_CALCULATE], "What time is it in Tokyo?", _NONE),
    ([_MAIL], "Search the web for pizza recipes.", _NONE),
    ([_CITY], "Play a song by Queen.", _NONE),
    ([_CITY], "Hello!", check.says("Hello")),
    ([_CITY, _SEARCH], "Who are you?", check.says("demo model")),
]
"""`(tools, question, check)`."""
