"""The ordinary kinds of tools: weather, time, search, arithmetic, mail, and a few more."""

from .schemas import Kind, Parameter
from .words import (
    COUNTRIES, ENDINGS, FIRST_NAMES, HOSTS, LANGUAGES, OPENINGS, SUBJECTS, ZONES, city
)

_GET = "[get|fetch|check|look_up|find|show|read|current]"
_PLACE = Parameter(
    ("city", "location", "place", "town", "city_name", "area", "where", "destination"),
    ("The city", "The name of the city", "The name of the place", "City name, e.g. Oslo",
     "Where", "The place to look at"),
)
_PLEASE = "[|Please |Can you |Could you |Hey, |I need you to ]"


def _weather(rng, split, source, offered):
    made = {"place": city(rng, split, source)}
    if "unit" in offered.choices:
        made["unit"] = rng.choice(offered.choices["unit"])
    made["days"] = rng.randint(2, 14)
    return made


def _weather_result(rng, told):
    result = {
        "weather": rng.choice("sunny rainy windy cloudy snowy foggy".split()),
        "degrees": rng.randint(0, 35),
    }
    return result, f"In {told['place']} it is {result['weather']}, at {result['degrees']} degrees."


WEATHER = Kind(
    names=(f"{_GET}_[weather|forecast|weather_forecast|current_weather|conditions]",
           "weather[|_lookup|_info|_api|_now|_forecast|_report|_in_city]", "forecast"),
    texts=("Get the weather in a city", "Returns the current weather", "The weather of a place",
           "Get the current weather for a location", "Weather forecast for a city",
           "Looks up how the weather is"),
    parameters={
        "place": _PLACE,
        "unit": Parameter(
            ("unit", "units", "temperature_unit", "scale", "degrees"),
            ("The unit of temperature", "Celsius or Fahrenheit", "Temperature unit"),
            choices=(("celsius", "fahrenheit"), ("fahrenheit", "celsius"), ("metric", "imperial"),
                     ("celsius", "fahrenheit", "kelvin")),
        ),
        "days": Parameter(
            ("days", "num_days", "day_count", "forecast_days", "number_of_days"),
            ("How many days", "The number of days", "Days to forecast"), "integer",
        ),
    },
    make=_weather,
    questions=(
        "[What is|What's|How is|How's|Tell me|Show me|Check|I need|Give me] the [weather|forecast|"
        "current weather|weather forecast] [in|for|of|like in] {place}",
        "[Is it|Will it be] [sunny|raining|cold|warm|windy|hot|snowing] in {place}",
        "[What will|How will] the weather [be|be like|look] in {place}",
        "[How hot|How cold|How warm] is it [in|right now in|currently in] {place}",
        "[What is|What's|Tell me] the temperature in {place}",
        "[|What about the ][weather|forecast] [in|for] {place}",
    ),
    suffixes={
        "unit": (" in {unit}", ", in {unit}", " in {unit} units", " (in {unit})"),
        "days": (" for the next {days} days", " for {days} days", " over the next {days} days"),
    },
    result=_weather_result,
    ends="[?|.||!|, please.| today?| now?| right now?]",
)


def _clock(rng):
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def _time_result(rng, told):
    time = _clock(rng)
    place = f" in {told['place']}" if "place" in told else ""
    return {"time": time}, f"It is {time}{place}."


_TIME_NAMES = (f"{_GET}_[time|local_time|current_time|clock|time_in_city|world_time]",
               "[time|clock|now|local_time|world_clock|current_time|time_of|time_in]")
_TIME_TEXTS = ("Get the current time in a city", "Returns the local time", "The time of a place",
               "Tells what time it is", "Current time somewhere", "Looks at the clock of a place")
_TIME = (
    "[What time is it|What is the time|What's the time|Tell me the time|What is the local time|"
    "What's the current time|How late is it|Which hour is it] [in|over in|right now in] {place}",
    "[Give me|Show me|Check|I need|Look up] the [time|current time|local time] [in|for] {place}",
)
TIME = Kind(
    names=_TIME_NAMES, texts=_TIME_TEXTS,
    parameters={
        "place": _PLACE,
        "format": Parameter(
            ("format", "clock", "style", "time_format"), ("The format", "12 or 24 hours", "Style"),
            choices=(("12h", "24h"), ("24h", "12h")),
        ),
    },
    make=lambda rng, split, source, offered: {
        "place": city(rng, split, source),
        "format": rng.choice(offered.choices.get("format", ("24h",))),
    },
    questions=_TIME,
    suffixes={"format": (" in {format} format", " as {format}", ", in the {format} format")},
    result=_time_result,
    ends="[?|.||, please.| now?|, please?]",
)
ZONE = Kind(
    names=_TIME_NAMES, texts=("Get the time of a time zone", "The current time in a timezone",
                              "Returns the time of a zone", "Time by timezone"),
    parameters={
        "place": Parameter(
            ("timezone", "time_zone", "tz", "zone", "zone_name", "tz_name"),
            ("The time zone", "IANA time zone, e.g. Europe/Oslo", "Name of the timezone"),
        ),
    },
    make=lambda rng, split, source, offered: {
        "place": split.draw(lambda: rng.choice(ZONES), "zone")
    },
    questions=(*_TIME, "[What time is it|What is the time] in the [timezone|time zone] {place}"),
    result=_time_result,
    ends="[?|.||, please.| now?]",
)
NOW = Kind(
    names=("[now|get_time|get_current_time|current_time|clock|time|get_now|read_clock|what_time]",),
    texts=("Get the current time", "Returns the time", "The time now", "Tells the time"),
    parameters={},
    make=lambda rng, split, source, offered: {},
    questions=(
        "[What time is it|What is the time|What's the time|Tell me the time|How late is it|"
        "What is the current time|Do you know what time it is|Which hour is it]",
    ),
    result=_time_result,
    ends="[?| now?|, please?| right now?|]",
)


def _query(rng, source):
    count = rng.choice([1, 2, 2, 3, 3, 4])
    words = [source.word(rng) for _ in range(count)]
    if count > 1 and rng.random() < 0.3:
        words[-1] = rng.choice(["in ", "near ", "from "]) + source.name(rng)
    elif rng.random() < 0.1:
        words = [source.name(rng), *words[1:]]
    return " ".join(words)


def query(rng, split, source):
    return split.draw(lambda: _query(rng, source), "query")


def _search_result(rng, told):
    titles = [f"{told['query'].capitalize()} {rng.choice(['today', 'for all', 'guide', 'news'])}"]
    return {"results": [{"title": title} for title in titles]}, f"I found: {', '.join(titles)}."


SEARCH = Kind(
    names=("[search|web_search|search_web|google|look_up|internet_search|search_internet|find|"
           "search_online|browse|query_web|websearch|duckduckgo_search|brave_search]",
           "[run|do|web|online|new]_search"),
    texts=("Search the web", "Searches the internet", "Look something up on the web",
           "Search the web for a query", "Find pages on the internet", "Asks a search engine"),
    parameters={
        "query": Parameter(
            ("query", "q", "search", "text", "search_query", "keywords", "term", "search_term"),
            ("The search query", "What to search for", "Words to look for", "The keywords"),
        ),
        "limit": Parameter(
            ("limit", "max_results", "count", "num_results", "top_k", "n", "results"),
            ("The number of results", "How many results", "Maximum number of results"), "integer",
        ),
    },
    make=lambda rng, split, source, offered: {
        "query": query(rng, split, source), "limit": rng.randint(2, 50)
    },
    questions=(
        _PLEASE + "[search for|search the web for|look up|google|search online for|look for|"
        "find information on|search the internet for|find pages about|do a search for] {query}",
        "[Search|Search the web|Web search|Look up|Google|Look this up]: {query}",
        "[What can you find|What does the web say|What is there online] about {query}",
        "I [want|need|would like] [to find|information about|to look up|web pages about] {query}",
    ),
    suffixes={
        "limit": (", {limit} results", ", at most {limit} results", " and show {limit} results",
                  " and give me {limit} results", ", only {limit} results"),
    },
    result=_search_result,
    ends="[|.|!|, please.]",
)


def _mail(rng, split, source, offered):
    name = rng.choice(FIRST_NAMES)
    to = name
    if rng.random() < 0.75:
        to = f"{name.lower()}{rng.choice(['', '', '', '.smith', '7', '_b'])}@{rng.choice(HOSTS)}"
    return {
        "to": to,
        "subject": rng.choice(SUBJECTS) + rng.choice(["", "", f" in {source.name(rng)}"]),
        "body": f"{rng.choice(OPENINGS)} {rng.choice(ENDINGS)}" + rng.choice(["", ".", "!"]),
    }


def mail(rng, split, source, offered):
    """Returns the parts of a mail, which are held out as a whole."""
    made = split.draw(lambda: tuple(_mail(rng, split, source, offered).items()), "mail")
    return dict(made)


_VERB = "[send|write|compose|draft]"
MAIL = Kind(
    names=("[send|compose|write|new|post|create|send_an]_[mail|email|e_mail|mail_message]",
           "[email|mail|mailer|email_sender|gmail_send|send_mail_to]"),
    texts=("Send an email", "Sends a mail to somebody", "Writes and sends an e-mail",
           "Send an email message to a recipient", "Mails a text to a person"),
    parameters={
        "to": Parameter(
            ("to", "recipient", "address", "email", "receiver", "to_address"),
            ("The recipient", "The address of the recipient", "Who gets it", "Email address"),
        ),
        "subject": Parameter(
            ("subject", "title", "subject_line", "topic", "headline"),
            ("The subject", "Subject of the mail", "What it is about"),
        ),
        "body": Parameter(
            ("body", "text", "content", "message", "mail_text"),
            ("The text of the mail", "The body", "What to write", "Message text"),
        ),
    },
    make=mail,
    questions=(
        _PLEASE + _VERB + " [an email|a mail|an e-mail|a message by mail] to {to} with [the "
        'subject|subject] "{subject}" and [the text|the body|the message|body|text] "{body}"',
        _PLEASE + "[email|mail] {to} with the subject {subject} [and the text|saying|and say]: "
        "{body}",
        _PLEASE + _VERB + " {to} an [email|e-mail] about {subject} [saying|that says|with the text]"
        ' "{body}"',
        "[Email|Mail|Send a mail] to {to}, subject[:|] {subject}, [body|text|message]: {body}",
        _PLEASE + "[send|write] {to} a mail[.|:] Subject: {subject}. [Text|Body|Message]: {body}",
    ),
    result=lambda rng, told: ({"sent": True}, f"The mail to {told['to']} is sent."),
    ends="",
)


def _timer_result(rng, told):
    return {"ok": True}, f"The timer is set for {told['minutes']} minutes."


def _translate(rng, split, source, offered):
    text, language = split.draw(
        lambda: (f"{rng.choice(OPENINGS)} {rng.choice(ENDINGS)}", rng.choice(LANGUAGES)),
        "translation",
    )
    return {"text": text, "language": language}


OTHERS = [
    Kind(
        names=("[set|start|create|new|run]_[timer|countdown|alarm]", "[timer|countdown|alarm]"),
        texts=("Sets a timer", "Start a countdown", "Rings after some minutes", "Starts a clock"),
        parameters={"minutes": Parameter(
            ("minutes", "duration", "length", "duration_minutes", "mins"),
            ("How many minutes", "The duration in minutes", "Minutes"), "integer")},
        make=lambda rng, split, source, offered: {
            "minutes": split.draw(lambda: rng.randint(1, 120), "minutes")
        },
        questions=(
            _PLEASE + "[set|start] [a timer|a countdown] [for|of] {minutes} minutes",
            _PLEASE + "[wake me|remind me|ring] in {minutes} minutes",
        ),
        result=_timer_result,
        ends="[|.|!|, please.]",
    ),
    Kind(
        names=("[translate|translate_text|translator|translation|get_translation|to_language]",),
        texts=("Translates a text", "Translate text to a language", "Says it in a language"),
        parameters={
            "text": Parameter(("text", "sentence", "input", "source"), ("The text", "What to say")),
            "language": Parameter(("language", "to", "target", "target_language"),
                                  ("The language", "Target language", "Into which language")),
        },
        make=_translate,
        questions=(
            _PLEASE + '[translate|put|turn] "{text}" [into|to] {language}',
            '[How do you say|How does one say|What is] "{text}" in {language}',
            _PLEASE + "[translate|turn] [this|the following] into {language}: {text}",
        ),
        result=lambda rng, told: ({"ok": True}, "The text is translated."),
        ends="",
    ),
    Kind(
        names=("[get_directions|route|find_route|directions|plan_route|navigate|get_route]",),
        texts=("Finds the way between places", "Get directions", "Plans a route", "The best way"),
        parameters={
            "from": Parameter(("from", "origin", "start", "from_city", "departure"),
                              ("Where it starts", "The origin", "Start")),
            "to": Parameter(("to", "destination", "end", "to_city", "arrival"),
                            ("Where it ends", "The destination", "End")),
        },
        make=lambda rng, split, source, offered: {
            "from": city(rng, split, source), "to": city(rng, split, source)
        },
        questions=(
            "[How do I get|How can I go|What is the way|Find a route|Give me directions|Show me "
            "the way|Plan a trip] from {from} to {to}",
        ),
        result=lambda rng, told: (
            {"km": 120}, f"From {told['from']} to {told['to']} it is 120 km."
        ),
        ends="[?|.||, please.]",
    ),
    Kind(
        names=("[get|fetch|read|show|latest]_[news|headlines]", "[news|headlines]"),
        texts=("Get the news", "The newest headlines", "News about a topic", "Reads the paper"),
        parameters={"query": Parameter(("topic", "about", "subject", "country", "theme"),
                                       ("The topic", "What about", "Which topic"))},
        make=lambda rng, split, source, offered: {"query": split.draw(
            lambda: rng.choice([source.name(rng), rng.choice(COUNTRIES)]), "news")},
        questions=(
            "[What is the news|What are the headlines|Show me the news|Any news|Give me the news|"
            "Read me the headlines|What is new] [about|from|in|on] {query}",
        ),
        result=lambda rng, told: ({"ok": True}, f"There is nothing new about {told['query']}."),
        ends="[?||, please.]",
    ),
]
