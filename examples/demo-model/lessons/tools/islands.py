"""Tools of the invented world: the call, its arguments, and the meaning of its result."""

import json

from .. import arithmetic, check, facts
from ..conversation import Conversation
from ..vocabulary import COMMON, invented_name, invented_town
from ..world import PEOPLE, TOWN_NAMES

_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_WEATHER = "sunny rainy windy cloudy snowy foggy".split()


class Tool:
    """A tool under one of several names, its parameters, questions, and answers to its result."""

    def __init__(self, names, description, parameters, questions, make, result, answer):
        self.names, self.description, self.parameters = names, description, parameters
        self.questions, self.make, self.result, self.answer = questions, make, result, answer


SUBJECTS = (
    "animals beaches bees birds boats bread bridges butterflies castles cats cheese chess clouds "
    "coins cooking dancing dogs dragons drawing engines farming fishing flowers football forests "
    "gardens ghosts glass gold history horses houses islands kings knights lakes languages lanterns "
    "magic maps mountains music oceans painting pirates planets poems queens rain rivers rockets "
    "sailing ships snow spiders stars storms swimming tea tigers toys trains trees volcanoes whales "
    "winter wolves"
).split()
"""Learned by heart, because in a call they stand in quotation marks, where words are spelled."""


def _town(rng):
    return rng.choice(TOWN_NAMES) if rng.random() < 0.4 else invented_town(rng)


TOOLS = [
    Tool(
        "get_weather|weather|look_up_weather|read_weather|weather_of|check_weather".split("|"),
        "The weather of a place",
        {"place|town|city|location": _STRING},
        (
            "[What is the weather like|How is the weather|What is the weather|Is it "
            "sunny|Is it raining] in {v0}[?| today?| now?]",
            "[|Please ][tell me|check|look up] the weather [in|of] {v0}[.|, please.]",
        ),
        lambda rng: [_town(rng)],
        lambda rng, args: {"weather": rng.choice(_WEATHER), "degrees": rng.randint(0, 35)},
        lambda args, r: (
            f"In {args[0]} it is {r['weather']}, at {r['degrees']} degrees.",
            [r["weather"], str(r["degrees"])],
        ),
    ),
    Tool(
        "set_timer|start_timer|timer|new_timer|run_timer|timer_start".split("|"),
        "Starts a timer",
        {"minutes|duration": _INTEGER},
        (
            "[Set|Start|Please set|Please start|Can you set] a timer [for|of] {v0} minutes[.|?|!]",
            "[Wake me|Remind me|Ring|Please ring] in {v0} minutes[.|, please.|!]",
        ),
        lambda rng: [rng.randint(1, 90)],
        lambda rng, args: {"ok": True},
        lambda args, r: (f"The timer is set for {args[0]} minutes.", [str(args[0]), "timer"]),
    ),
    Tool(
        "multiply|product|times|multiply_numbers|multiplication|get_product".split("|"),
        "Multiplies two numbers",
        {"a|x|first": _INTEGER, "b|y|second": _INTEGER},
        (
            "[What is|How much is|Please work out] {v0} [times|*] {v1}?",
            "[Multiply|Please multiply] {v0} [by|with] {v1}[.|, please.]",
        ),
        lambda rng: [rng.randint(13, 999), rng.randint(13, 999)],
        lambda rng, args: {"result": args[0] * args[1]},
        lambda args, r: (f"The result is {r['result']}.", [str(r["result"])]),
    ),
    Tool(
        "send_message|write_to|message|send_text|write_message|post_message".split("|"),
        "Sends a message to somebody",
        {"to|recipient": _STRING, "text|message": _STRING},
        (
            '[Send|Please send|Can you send] {v0} the message "{v1}"[.|?|, please.]',
            '[Write|Please write|Tell] {v0}: "{v1}"[.|, please.|!]',
        ),
        lambda rng: [
            invented_name(rng)[0],
            rng.choice(["Come", "Wait", "Hello", "Dinner is", "I am", "We are", "Bring it"])
            + " "
            + rng.choice(
                [
                    "soon",
                    "at home",
                    "in the garden",
                    "at the market",
                    "by the lake",
                    "later",
                    "outside",
                ]
            ),
        ],
        lambda rng, args: {"sent": True},
        lambda args, r: (f"The message to {args[0]} is sent.", [args[0], "sent"]),
    ),
    Tool(
        "find_book|search_books|look_up_book|books|get_book|find_books".split("|"),
        "Finds books about a subject",
        {"subject|topic|query": _STRING, "pages|max_pages|length": _INTEGER},
        (
            "[Find|Search|Look for|Please find|Please look for] [a book|books|"
            "something to read] [about|on] {v0} [of|with] at most {v1} pages[.|, please.]",
            "[Is there|Do you have|Are there] [a book|books] [about|on] {v0} [of|with] at most "
            "{v1} pages?",
        ),
        lambda rng: [rng.choice(SUBJECTS), rng.randint(20, 900)],
        lambda rng, args: {
            "title": f"The {rng.choice(COMMON).capitalize()}",
            "shelf": rng.randint(1, 40),
        },
        lambda args, r: (
            f'There is "{r["title"]}" on shelf {r["shelf"]}.',
            [r["title"], str(r["shelf"])],
        ),
    ),
    Tool(
        "book_table|reserve_table|reserve|table|get_table|hold_table".split("|"),
        "Reserves a table",
        {"name|guest": _STRING, "people|guests|seats": _INTEGER, "hour|time": _INTEGER},
        (
            "[Book|Reserve|Please book|Please reserve|Can you book] a table for {v1} "
            "[people|guests] at {v2} o'clock [for|in the name of] {v0}[.|?|, please.]",
        ),
        lambda rng: [invented_name(rng)[0], rng.randint(2, 12), rng.randint(1, 12)],
        lambda rng, args: {"table": rng.randint(1, 30)},
        lambda args, r: (
            f"You have table {r['table']} at {args[2]} o'clock.",
            [str(r["table"]), str(args[2])],
        ),
    ),
    Tool(
        "find_ferry|next_ferry|ferry|get_ferry|search_ferry|ferry_times".split("|"),
        "Finds the next ferry between two towns",
        {"from|start|departure": _STRING, "to|end|destination": _STRING},
        (
            "[When is|When does|What time is] the next ferry [go |leave |]from {v0} to {v1}?",
            "[Find|Please find|Look for] [a ferry|the next ferry] from {v0} to {v1}[.|, please.]",
        ),
        lambda rng: (
            rng.sample(TOWN_NAMES, 2)
            if rng.random() < 0.4
            else [invented_town(rng), invented_town(rng)]
        ),
        lambda rng, args: {"hour": rng.randint(5, 22), "pier": rng.randint(1, 9)},
        lambda args, r: (
            f"The next ferry to {args[1]} leaves at {r['hour']} o'clock from pier {r['pier']}.",
            [str(r["hour"]), str(r["pier"])],
        ),
    ),
]


def lesson(rng, split):
    tool = rng.choice(TOOLS)
    spare = rng.sample([t for t in TOOLS if t is not tool], rng.choice([0, 0, 1, 1, 2]))
    chosen, schemas = None, []
    for offered in rng.sample([tool, *spare], 1 + len(spare)):
        name, keys = (
            rng.choice(offered.names),
            [rng.choice(k.split("|")) for k in offered.parameters],
        )
        schemas.append(schema(offered, name, keys))
        chosen = (name, keys) if offered is tool else chosen
    conversation = Conversation(tools=schemas)
    if rng.random() < 0.15:
        return conversation.then(_without(rng, split))
    name, keys = chosen
    args = split.draw(lambda: tuple(tool.make(rng)), "arguments")
    call = {"name": name, "arguments": dict(zip(keys, args))}
    slots = {f"v{i}": argument for i, argument in enumerate(args)}
    conversation.user(split.say(rng, *tool.questions, **slots))
    conversation.answer("", check.calls([call]), calls=[call])
    if rng.random() < 0.6:
        result = tool.result(rng, args)
        text, mentions = tool.answer(args, result)
        conversation.tool(json.dumps(result)).answer(text, check.says(*mentions))
    return conversation


def schema(tool, name, keys):
    """Returns a function as OpenAI's API describes it."""
    parameters = {
        "type": "object",
        "properties": dict(zip(keys, tool.parameters.values())),
        "required": keys,
    }
    function = {"name": name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _without(rng, split):
    """Returns a question that needs none of the tools."""
    if rng.random() < 0.5:
        return facts.person_fact(rng, split, rng.choice(PEOPLE), rng.choice(list(facts.PERSON)))
    return arithmetic.lesson(rng, split)
