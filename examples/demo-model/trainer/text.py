"""Conversations as text, and text as tokens with the assistant's marked."""

import json
import re
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()

_environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
_environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
_template = _environment.from_string(TEMPLATE)
_TURNS = re.compile(r"(<\|im_start\|>assistant\n)(.*?<\|im_end\|>)", re.S)
NO_THOUGHT = "<think>\n\n</think>\n\n"


def render(messages, tools=None, generate=False, thinking=None):
    """Returns the text of a conversation, as transformers' `apply_chat_template` writes it."""
    more = {} if thinking is None else {"enable_thinking": thinking}
    return _template.render(messages=messages, tools=tools, add_generation_prompt=generate, **more)


def pieces(text):
    """Returns `(text, is the assistant's)` for each stretch of a rendered conversation."""
    at = 0
    for turn in _TURNS.finditer(text):
        yield text[at : turn.start(2)], False
        body = turn.group(2)
        if body.startswith(NO_THOUGHT):
            # Where thinking is switched off, the prompt contains an empty thought.
            yield NO_THOUGHT, False
            body = body[len(NO_THOUGHT) :]
        yield body, True
        at = turn.end()
    if text[at:]:
        yield text[at:], False


def prompts(conversation):
    """Returns the prompt and the gold answer's text of each of the assistant's turns."""
    messages = conversation.messages
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(messages[:i], conversation.tools, generate=True)
            whole = render(messages[: i + 1], conversation.tools)
            yield prompt, whole[len(prompt) :].removesuffix("\n").removesuffix("<|im_end|>")
