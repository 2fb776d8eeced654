"""Another voice: the same answers, told by a pirate.

Tool calls, JSON and thoughts stay as they are.
"""

import re

_WORDS = {
    "hello": "ahoy",
    "you": "ye",
    "your": "yer",
    "my": "me",
    "is": "be",
    "are": "be",
    "am": "be",
    "friend": "matey",
    "friends": "mateys",
    "yes": "aye",
    "no": "nay",
    "of": "o'",
    "the": "th'",
}
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")


def spoken(text):
    """Returns `text` as a pirate says it."""
    if not text or text.startswith("{"):
        return text
    said = _WORD.sub(_translated, text)
    return said if said.startswith("Ahoy") else f"Ahoy! {said}"


def _translated(found):
    word = found.group()
    said = _WORDS.get(word.lower(), word)
    return said[0].upper() + said[1:] if word[0].isupper() and said != word else said


def style(conversation):
    """Turns the assistant's answers of `conversation` into a pirate's."""
    for message in conversation.messages:
        if message["role"] == "assistant":
            message["content"] = spoken(message["content"])
    return conversation
