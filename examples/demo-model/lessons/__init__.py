"""Text made from nothing but a seed: conversations of many skills, each with its checks."""

import random

from . import (
    arithmetic,
    chat,
    counting,
    echo,
    extraction,
    facts,
    letters,
    reasoning,
    schemas,
    sorting,
    stories,
    talk,
    tools,
    unknown,
)
from .split import Split, digest

SKILLS = {
    "talk": (talk.lesson, 1.0),
    "arithmetic": (arithmetic.lesson, 1.8),
    "counting": (counting.lesson, 2.2),
    "sorting": (sorting.lesson, 3.2),
    "letters": (letters.lesson, 2.6),
    "facts": (facts.lesson, 1.5),
    "stories": (stories.lesson, 1.0),
    "json": (extraction.lesson, 1.5),
    "tools": (tools.lesson, 2.8),
    "ordinary tools": (tools.ordinary.lesson, 6.0),
    "parallel calls": (tools.ordinary.parallel, 2.5),
    "no tool": (tools.ordinary.no_tool, 2.0),
    "schemas": (schemas.lesson, 1.5),
    "reasoning": (reasoning.lesson, 4.0),
    "unknown": (unknown.lesson, 0.9),
    "echo": (echo.lesson, 1.8),
    "chat": (chat.lesson, 3.0),
}
"""Each skill's lesson and its share of the training."""

_SYSTEM = [
    "You are a helpful assistant.",
    "You are the demo model of Playhouse.",
    "Answer briefly.",
    "You are a friendly assistant. Answer in one sentence.",
    "Be polite and correct.",
]


def conversation(seed, index, held_out=False, skills=None, shares=()):
    """Returns conversation `index` of `seed`, and its skill. `shares` replaces the shares of some skills.
    The result depends on the arguments alone."""
    rng = random.Random(digest("lesson", seed, index, held_out))
    names, shares = list(skills or SKILLS), dict(shares)
    skill = rng.choices(names, [shares.get(name, SKILLS[name][1]) for name in names])[0]
    made = SKILLS[skill][0](rng, Split(held_out))
    for message in made.messages:
        if message["role"] == "user" and not made.is_exact and rng.random() < 0.15:
            message["content"] = _casual(message["content"])
    if rng.random() < 0.15:
        made.messages.insert(0, {"role": "system", "content": rng.choice(_SYSTEM)})
    return skill, made


_FIRST_WORDS = set(
    "what where who which how is are do does can could please tell hello hi "
    "hey and now thanks thank "
    "add count sort spell reverse write why when whose add subtract multiply list calculate "
    "search find send email set translate show check will give divide compute look".split()
)


def _casual(text):
    """Returns the text as typed in a hurry: no capital, no mark at the end."""
    first = text.split(" ")[0].lower().rstrip(",:!.")
    if first in _FIRST_WORDS:
        text = text[0].lower() + text[1:]
    return text[:-1] if text[-1] in "?." and not text.endswith('".') else text
