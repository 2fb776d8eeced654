"""JSON out of sentences."""

import json

from . import check
from .conversation import one
from .vocabulary import COLOURS, THINGS, invented_name, invented_town
from .world import JOBS

_ASK = (
    "[Extract|Please extract|Get|Take] {keys} [as JSON|as a JSON object|in "
    "JSON] from this[| text| sentence]: {text}",
    "{text} [Give me|Write|Return|Show] {keys} [as JSON|as a JSON object|in JSON][.|, please.]",
    "[Turn this into JSON with|Make JSON with|Write JSON with] {keys}: {text}",
)
_PEOPLE = [
    "{name} is {age} years old and lives in {town}.",
    "{name}, {age}, lives in {town} and works as {job}.",
    "My name is {name}, I am {age} years old and I come from {town}.",
    "In {town} there lives {name}, aged {age}, who works as {job}.",
    "The new {job} of {town} is called {name} and is {age} years old.",
]
_ORDERS = [
    "{name} ordered {count} {colour} {item} for {price} coins.",
    "Please send {count} {colour} {item} to {name}; the price is {price} coins.",
    "For {price} coins, {name} bought {count} {colour} {item}.",
    "{count} {colour} {item} were sold to {name} at {price} coins.",
]
_EVENTS = [
    "{name} invites everybody to {town} on {day} at {hour} o'clock.",
    "The meeting with {name} is on {day} at {hour} o'clock in {town}.",
    "On {day}, {name} arrives in {town} at {hour} o'clock.",
]
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def told(rng, split):
    """Returns a sentence, and all that it tells."""
    text, values, _ = _sentence(rng, split)
    return text, values


def _sentence(rng, split):
    texts, fields = rng.choice([(_PEOPLE, _person), (_ORDERS, _order), (_EVENTS, _event)])
    values = split.draw(lambda: tuple(fields(rng).items()), "record")
    values = dict(values)
    template = rng.choice(texts)
    keys = [key for key in values if "{" + key + "}" in template]
    article = {"job": "a " if not template.startswith("The new") else ""}
    spoken = values | {
        key: f"{article.get(key, '')}{values[key]}" for key in article if key in values
    }
    return template.format(**spoken), {key: values[key] for key in keys}, keys


def lesson(rng, split):
    text, values, keys = _sentence(rng, split)
    rng.shuffle(keys)
    keys = keys[: rng.randint(2, len(keys))]
    question = split.say(rng, *_ASK, keys=_told(keys), text=text)
    wanted = {key: values[key] for key in keys}
    return one(question, json.dumps(wanted, ensure_ascii=False), check.data(wanted))


def _told(keys):
    return ", ".join(keys[:-1]) + " and " + keys[-1]


def _person(rng):
    name, _ = invented_name(rng)
    job = rng.choice([j for j in JOBS if j[0] not in "aeiou"])
    return {"name": name, "age": rng.randint(5, 99), "town": invented_town(rng), "job": job}


def _order(rng):
    name, _ = invented_name(rng)
    count, price = rng.randint(2, 60), rng.randint(1, 400)
    return {
        "name": name,
        "count": count,
        "colour": rng.choice(COLOURS),
        "item": rng.choice(THINGS),
        "price": price,
    }


def _event(rng):
    name, _ = invented_name(rng)
    return {
        "name": name,
        "town": invented_town(rng),
        "day": rng.choice(_DAYS),
        "hour": rng.randint(1, 12),
    }
