"""JSON under a schema: an engine forces its keys, and the model fills in the values.

Strings and numbers must end. The request shows the schema, or only asks for JSON, or tells nothing of
it. The keys are not learned, because they are given.
"""

import json

from . import check, extraction, facts, talk
from .conversation import one
from .tools import ordinary
from .tools.words import CITIES, ENDINGS, FIRST_NAMES, OPENINGS, WORDS
from .vocabulary import COLOURS, COMMON
from .world import PEOPLE

_ASK = (
    "[Extract|Read|Get|Fill in|Take] [the data|the fields|the record|the object|everything] "
    "[from|out of] [this|this text|the sentence]: {text}",
    "{text} [As JSON|As a JSON object|In JSON|Return JSON|Answer in JSON][.|, please.|!]",
    "[What does this say|What is told here|Who is it|What is it about]? {text}",
)
_SHOWN = (
    "Answer with JSON of this schema: {schema}",
    "Respond with a JSON object that matches this schema: {schema}",
    "JSON schema: {schema}",
    "Answer in JSON.",
    "You answer with JSON alone.",
)
_KEYS = {
    "name": "name person full_name who customer",
    "age": "age years age_in_years how_old",
    "town": "town city place location",
    "job": "job profession occupation work",
    "count": "count quantity amount number",
    "colour": "colour color paint shade",
    "item": "item product thing goods",
    "price": "price cost total coins",
    "day": "day weekday date when",
    "hour": "hour time at start",
}
_FREE = {
    "string": "title summary text answer reply label category description comment name city "
    "country author word tag message note reason first_name genre",
    "integer": "age count number score year rank level size total stars votes id",
    "number": "price weight height rating share length temperature",
    "boolean": "ok is_open active valid done found",
}


def _type(value):
    types = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return types[type(value)]


def schema_of(wanted):
    """Returns the JSON schema that `wanted` matches."""
    properties = {key: {"type": _type(value)} for key, value in wanted.items()}
    return {"type": "object", "properties": properties, "required": list(wanted)}


def lesson(rng, split):
    kind = rng.random()
    if kind > 0.85:
        return ordinary.required(rng, split)
    if kind < 0.4:
        question, wanted = _record(rng, split)
        wanted_check = check.data(wanted)
    elif kind < 0.6:
        question, wanted = _reply(rng, split)
        wanted_check = check.fits(schema_of(wanted))
    else:
        question, wanted = _free(rng, split)
        wanted_check = check.fits(schema_of(wanted))
    text = json.dumps(wanted, ensure_ascii=False)
    conversation = one(question, text, wanted_check)
    conversation.is_given_keys = True
    if rng.random() < 0.4:
        shown = rng.choice(_SHOWN).format(schema=json.dumps(schema_of(wanted)))
        conversation.messages.insert(0, {"role": "system", "content": shown})
    return conversation


def _record(rng, split):
    """Returns a sentence, and what it tells under one of several keys."""
    text, values = extraction.told(rng, split)
    wanted = {rng.choice(_KEYS[name].split()): value for name, value in values.items()}
    return split.say(rng, *_ASK, text=text), wanted


def _reply(rng, split):
    """Returns a question and its usual answer as the value of a key."""
    if rng.random() < 0.5:
        asked = talk.lesson(rng, split)
    else:
        relation = rng.choice(list(facts.PERSON))
        asked = facts.person_fact(rng, split, rng.choice(PEOPLE), relation)
    question, answer = (message["content"] for message in asked.messages)
    key = rng.choice(["answer", "reply", "text", "response", "message", "content", "result"])
    return question, {key: answer}


def _free(rng, split):
    """Returns a request that does not tell the values, which may be anything of their type."""
    kinds = rng.choices(list(_FREE), [5, 3, 1, 1], k=rng.choice([1, 2, 2, 3, 4]))
    wanted = {rng.choice(_FREE[kind].split()): _value(rng, kind) for kind in kinds}
    word = split.draw(lambda: rng.choice([*COMMON, *WORDS, *CITIES]), "free word")
    question = split.say(
        rng,
        "[Tell me|Make up|Write|Give me|Invent|Describe|Show me] [something|an object|a record|a "
        "thing|an entry|an example|data] [about|with|for] {word}[.|, please.|!]",
        "[Tell me about|What do you know about|Describe|What is|Give me the facts about] "
        "{word}[?|.]",
        word=word,
    )
    return question, wanted


def _value(rng, kind):
    if kind == "integer":
        return rng.randint(0, rng.choice([9, 99, 99, 2_000]))
    if kind == "number":
        return rng.randint(0, 99) + rng.choice([0.5, 0.25, 0.75])
    if kind == "boolean":
        return rng.random() < 0.5
    return rng.choice([
        lambda: rng.choice(CITIES),
        lambda: rng.choice(FIRST_NAMES),
        lambda: f"{rng.choice(OPENINGS)} {rng.choice(ENDINGS)}",
        lambda: f"The {rng.choice(COLOURS)} {rng.choice(COMMON)}",
        lambda: rng.choice(COMMON).capitalize(),
    ])()
