"""Checks of answers. A check is data: `{"kind": …, …}`; `accepts` applies it to a text.

The text is the assistant's turn as it was generated, thoughts and tool calls in their tags.
"""

import json
import re

_THOUGHT = re.compile(r"^<think>(.*?)</think>\s*", re.S)
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.S)
_SPELLED = re.compile(r"\b\w(?:-\w)+\b")
_REFUSAL = re.compile(r"\b(?:don't know|do not know|never heard|know nothing)\b")


def accepts(check, text):
    """Returns whether `text` is a right answer."""
    thought = _THOUGHT.match(text)
    visible = text[thought.end() :] if thought else text
    if "<think>" in visible or "</think>" in visible:
        return False
    return _CHECKS[check["kind"]](check, visible)


def number(value):
    return {"kind": "number", "value": value}


def numbers(values):
    return {"kind": "numbers", "value": list(values)}


def words(values):
    return {"kind": "words", "value": list(values)}


def letters(value):
    return {"kind": "letters", "value": value}


def says(*value, others=()):
    return {"kind": "says", "value": list(value), "others": [o for o in others if o not in value]}


def yes_no(value):
    return {"kind": "yes_no", "value": value}


def data(value):
    return {"kind": "data", "value": value}


def calls(value):
    return {"kind": "calls", "value": value}


def fits(schema):
    return {"kind": "fits", "value": schema}


def refuses():
    return {"kind": "refuses"}


def story(*value):
    return {"kind": "story", "value": list(value)}


def _mentions(text, phrase):
    return re.search(rf"(?<!\w){re.escape(phrase.lower())}(?!\w)", text.lower()) is not None


def _number(check, text):
    found = re.findall(r"-?\d+", text)
    return bool(found) and int(found[-1]) == check["value"]


def _numbers(check, text):
    found = [int(n) for n in re.findall(r"\d+", text)]
    return found[-len(check["value"]) :] == check["value"] and len(found) <= len(check["value"]) + 1


def _words(check, text):
    listed = text.split(":")[-1].strip().rstrip(".")
    return [w.strip().lower() for w in re.split(r",| and ", listed) if w.strip()] == [
        w.lower() for w in check["value"]
    ]


def _letters(check, text):
    found = _SPELLED.findall(text)
    return bool(found) and found[-1].lower() == check["value"]


def _says(check, text):
    right = all(_mentions(text, phrase) for phrase in check["value"])
    return right and not any(_mentions(text, phrase) for phrase in check["others"])


def _yes_no(check, text):
    return re.match(r"(yes|no)\b", text.lower() or " ") is not None and text.lower().startswith(
        "yes" if check["value"] else "no"
    )


def _data(check, text):
    try:
        return json.loads(text) == check["value"]
    except ValueError:
        return False


def _calls(check, text):
    try:
        return [json.loads(call) for call in _CALL.findall(text)] == check["value"]
    except ValueError:
        return False


_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}


def _fits(check, text):
    """Is a whole object with the properties of a schema, each of its type."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    properties = check["value"]["properties"]
    return (
        isinstance(found, dict)
        and found.keys() == properties.keys()
        and all(isinstance(found[key], _TYPES[each["type"]]) for key, each in properties.items())
    )


def _refuses(_, text):
    return _REFUSAL.search(text) is not None


def _story(check, text):
    """Names what it must, in three or more different sentences, each with capital and full stop."""
    sentences = re.findall(r"[^.!?]+[.!?]\"?", text)
    whole = "".join(sentences).strip() == text.strip()
    capitals = all(re.match(r"\s*\"?[A-Z]", s) for s in sentences)
    differ = len(set(sentences)) == len(sentences) >= 3
    return whole and capitals and differ and all(_mentions(text, v) for v in check["value"])


_CHECKS = {
    "number": _number,
    "numbers": _numbers,
    "words": _words,
    "letters": _letters,
    "says": _says,
    "yes_no": _yes_no,
    "data": _data,
    "calls": _calls,
    "fits": _fits,
    "refuses": _refuses,
    "story": _story,
}
