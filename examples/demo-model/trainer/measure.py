"""The share of right answers per skill, on held-out conversations or those of training."""

import lessons
from lessons.check import accepts

from .generate import greedy
from .text import prompts

EXTRA_TOKENS = 24
"""An answer may be this much longer than the expected one, and is cut off then."""
ROWS = 48


def questions(skill, count, seed=2, held_out=True):
    """`(item, prompt, gold, check)` for each of the assistant's turns in `count` conversations."""
    for item in range(count):
        _, conversation = lessons.conversation(seed, item, held_out, [skill])
        for (prompt, gold), check in zip(prompts(conversation), conversation.checks):
            yield item, prompt, gold, check


def measure(model, tokenizer, skill, count, held_out=True, device="cpu", wrong=None):
    """The share of `count` conversations with every answer right; `wrong` gathers the others."""
    asked = list(questions(skill, count, held_out=held_out))
    ids = [tokenizer.encode(prompt, add_special_tokens=False).ids for _, prompt, _, _ in asked]
    longest = [len(tokenizer.encode(gold).ids) + EXTRA_TOKENS for _, _, gold, _ in asked]
    order = sorted(range(len(asked)), key=lambda i: (len(ids[i]), longest[i]))
    failed = set()
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        answers = greedy(model, [ids[i] for i in rows], max(longest[i] for i in rows), device)
        for i, answer in zip(rows, answers):
            item, prompt, gold, check = asked[i]
            text = tokenizer.decode(answer, skip_special_tokens=False)
            if not accepts(check, text):
                failed.add(item)
                if wrong is not None:
                    wrong.append((prompt, gold, text))
    return 1 - len(failed) / count
