"""The share of right answers per skill, on held-out or training conversations; and of right guesses."""

import json
from dataclasses import dataclass

import torch

import lessons
from lessons.check import accepts

from .constrained import Constraint, Grammar
from .generate import likeliest, written
from .text import prompts

EXTRA_TOKENS = 24
"""An answer is cut off when it is longer than the expected one by this."""
ROWS = 48
CONSTRAINED = ("schemas",)
CONSTRAINED_TOKENS = 256
"""An answer under a schema that is not at its end by then has a string or a number without one."""


@dataclass(frozen=True)
class Answer:
    """A model's answer, and the expected one."""

    item: int
    prompt: str
    gold: str
    text: str
    is_right: bool


def questions(skill, count, seed=2, held_out=True):
    """Returns `(item, prompt, gold, check)` for each of the assistant's turns in `count` conversations."""
    for item in range(count):
        _, conversation = lessons.conversation(seed, item, held_out, [skill])
        for (prompt, gold), check in zip(prompts(conversation), conversation.checks):
            yield item, prompt, gold, check


def answers(model, tokenizer, skill, count, held_out=True, device="cpu", pick=likeliest):
    """Returns the answers of `count` conversations, each given the expected ones before it. Where a
    schema gives the keys of an answer, only text that matches it can be written."""
    asked = list(questions(skill, count, held_out=held_out))
    ids = [tokenizer.encode(prompt, add_special_tokens=False).ids for _, prompt, _, _ in asked]
    longest = [len(tokenizer.encode(gold).ids) + EXTRA_TOKENS for _, _, gold, _ in asked]
    order = sorted(range(len(asked)), key=lambda i: (len(ids[i]), longest[i]))
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        chosen, limit = pick, max(longest[i] for i in rows)
        if skill in CONSTRAINED:
            grammars = [Grammar(json.loads(asked[i][2])) for i in rows]
            chosen, limit = Constraint(tokenizer, grammars, pick), CONSTRAINED_TOKENS
        texts = written(model, [ids[i] for i in rows], limit, chosen, device)
        for i, tokens in zip(rows, texts):
            item, prompt, gold, check = asked[i]
            text = tokenizer.decode(tokens, skip_special_tokens=False)
            yield Answer(item, prompt, gold, text, accepts(check, text))


def measure(model, tokenizer, skill, count, held_out=True, device="cpu"):
    """Returns the share of `count` conversations with every answer right."""
    given = answers(model, tokenizer, skill, count, held_out, device)
    return 1 - len({answer.item for answer in given if not answer.is_right}) / count


@torch.no_grad()
def agreement(model, draft, tokenizer, skill, count):
    """Returns for how many expected tokens the draft's first choice is the model's, and their number."""
    same = total = 0
    for _, prompt, gold, _ in questions(skill, count):
        before = tokenizer.encode(prompt, add_special_tokens=False).ids
        answer = tokenizer.encode(gold, add_special_tokens=False).ids
        tokens = torch.tensor([before + answer])
        first = [
            each.logits(each.hidden(tokens)[:, len(before) - 1 : -1]).argmax(-1)
            for each in (model, draft)
        ]
        same += int((first[0] == first[1]).sum())
        total += len(answer)
    return same, total
