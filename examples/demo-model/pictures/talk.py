"""Talk without a picture, and questions that a picture does not answer."""

import lessons

from . import questions, scenes

_GREET = (
    "[Hello|Hi|Hey|Good morning|Good evening|Hi there|Hello there][!|.||, who are you?|, how are you?]",
    "[Who|What] are you?",
    "[What can you do|How can you help|What do you know|Help|What are you for][?| for me?|]",
)
_SYSTEM = ("You are a helpful assistant.", "Answer briefly.", "Be polite and correct.")
_SKILLS = [name for name in lessons.SKILLS if name not in ("talk", "tools", "chat")]


def system(rng):
    """Returns a system message, or None mostly."""
    return rng.choice(_SYSTEM) if rng.random() < 0.12 else None


def greeting(rng, split):
    """Returns a greeting and its answer."""
    return split.say(rng, *_GREET), questions.HELLO


def unknown(rng, seed, index):
    """Returns a question about other matters, and an answer that says so."""
    index = f"unknown {index} {rng.random()}"
    _, made = lessons.conversation(seed, index, skills=_SKILLS)
    asked = next(m["content"] for m in made.messages if m["role"] == "user")
    return asked[:160], questions.UNKNOWN


def without_picture(rng, seed, index, split):
    """Returns turns of a conversation that has no picture."""
    kind = rng.random()
    if kind < 0.35:
        return [greeting(rng, split)]
    if kind < 0.65:
        return [unknown(rng, seed, index)]
    scene = scenes.Scene("empty", None, [])
    _, asked, _ = questions.question(scene, rng, split)
    return [(asked, questions.SEES_NO_PICTURE)]
