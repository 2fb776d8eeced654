"""Training steps as token batches: conversations of about one length share a batch.

Each conversation has a row of its own, so that none sees another. A step is a few batches with little
padding, and its content depends on the seed and the step alone.
"""

import random
import re

import lessons
from lessons import echo, quoted, stories
from lessons.split import Split, digest
from lessons.tools import ordinary
from lessons.tools.words import Pieces

from .text import NO_THOUGHT, pieces, render
from .tokenizer import END_OF_TEXT

PLAIN = 0.02
"""The share of bare stories, without a chat around them."""
ECHOES = 0.04
"""The share of lines of random tokens to repeat, so that each token is copied often, even a rare one."""
WITHOUT_THINKING = 0.08
"""The share of conversations whose prompt asks for no thought."""
LENGTH_MAX = 640
_KEY = re.compile(r'( ?[\[{]+"\w+":| "\w+":)')
"""A key in JSON with what stands before it, in whole tokens."""


def document(seed, index, skills=None, style=None, words=None, shares=()):
    """Returns `[(text, is to be learned)]` of one document; `words` are the tokenizer's, if there is
    one. `shares` may have those of quoted lines and of calls with random tokens, too."""
    rng = random.Random(digest("document", seed, index))
    kind = rng.random()
    if kind < PLAIN and style is None:
        plot = stories.new_plot(rng, Split(held_out=False))
        return [(plot["text"] + "<|endoftext|>", True)]
    conversation = None
    if words and skills is None:
        conversation = _of_rare_tokens(rng, 1 - kind, words, dict(shares))
    if conversation is None:
        _, conversation = lessons.conversation(seed, index, skills=skills, shares=shares)
    if style:
        style(conversation)
    messages = cut(rng, conversation.messages)
    text = render(messages, conversation.tools)
    if not messages[-1].get("reasoning_content") and rng.random() < WITHOUT_THINKING:
        head, mark, tail = text.rpartition("<|im_start|>assistant\n")
        text = head + mark + NO_THOUGHT + tail
    hidden = iter(hides_its_thought(messages))
    marked = [(part, learned and not next(hidden)) for part, learned in pieces(text)]
    return list(_without_keys(marked)) if conversation.is_given_keys else marked


def _of_rare_tokens(rng, kind, words, shares):
    """Returns a line or a call of random tokens, or nothing where `kind` is above their shares."""
    split, quotes, rare = Split(held_out=False), shares.get("quoted", 0.0), shares.get("rare", 0.0)
    if kind < ECHOES:
        return echo.line(rng, split, words.item)
    if kind < ECHOES + quotes:
        return quoted.line(rng, split, words.item)
    if kind < ECHOES + quotes + rare:
        lesson = ordinary.parallel if rng.random() < 0.2 else ordinary.lesson
        return lesson(rng, split, Pieces(words))
    return None


def _without_keys(marked):
    """Yields the parts, with the keys of learned JSON not to be learned."""
    for part, learned in marked:
        if not learned:
            yield part, False
            continue
        for i, piece in enumerate(_KEY.split(part)):
            if piece:
                yield piece, i % 2 == 0


class Words:
    """A tokenizer's tokens of small letters: those that begin a word, and those within one."""

    def __init__(self, tokenizer):
        texts = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
        self.beginnings = [t[1:] for t in texts if re.fullmatch(" [a-z]+", t)]
        self.others = [t for t in texts if re.fullmatch("[a-z]+", t)]
        self.capitals = [t[1:] for t in texts if re.fullmatch(" [A-Z][a-z]*", t)]

    def item(self, rng):
        """Returns a word of one to three tokens."""
        count = rng.choice([0, 0, 0, 1, 2])
        return rng.choice(self.beginnings) + "".join(rng.choice(self.others) for _ in range(count))

    def name(self, rng):
        """Returns a word with a capital, of one to four tokens, and at times two of them."""
        count = rng.choice([0, 1, 1, 2, 3])
        word = rng.choice(self.capitals) + "".join(rng.choice(self.others) for _ in range(count))
        return f"{word} {rng.choice(self.capitals)}" if rng.random() < 0.15 else word


def cut(rng, messages):
    """Returns the conversation, or its beginning: the chat template shows only the last turn's thought."""
    ends = [i for i, m in enumerate(messages) if m.get("reasoning_content")]
    end = rng.choice([*ends, len(messages) - 1])
    return messages[: end + 1]


def hides_its_thought(messages):
    """Returns for each of the assistant's turns whether its thought is hidden and thus not learned."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            yield bool(message.get("reasoning_content")) and i < last


def encode(tokenizer, documents):
    """Returns the token ids of each document, and for each token whether it is to be learned."""
    texts = [text for document in documents for text, _ in document]
    encoded = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    for document in documents:
        ids, learned = [], []
        for _, is_learned in document:
            piece = next(encoded).ids
            ids += piece
            learned += [is_learned] * len(piece)
        yield ids[:LENGTH_MAX], learned[:LENGTH_MAX]


class Batches:
    """The steps of a training."""

    def __init__(
        self, tokenizer, seed, conversations, rows_tokens_max, skills=None, style=None, shares=()
    ):
        self.tokenizer, self.seed, self.conversations = tokenizer, seed, conversations
        self.rows_tokens_max, self.skills, self.style = rows_tokens_max, skills, style
        self.words, self.shares = Words(tokenizer), shares

    def step(self, number, part=0, parts=1):
        """Returns part `part` of `parts` of step `number`: `(tokens, learned)` lists of each batch, padded
        to its longest row. Also returns how many tokens all parts learn."""
        first = number * self.conversations
        documents = [
            document(
                self.seed, first + i, self.skills, self.style, self.words, self.shares
            )
            for i in range(self.conversations)
        ]
        rows = sorted(encode(self.tokenizer, documents), key=lambda row: len(row[0]))
        # A row's first token has no token to predict it from.
        count = sum(sum(learned[1:]) for _, learned in rows)
        return list(self._batches(rows[part::parts])), count

    def _batches(self, rows):
        batch = []
        for row in rows:
            if batch and (len(batch) + 1) * len(row[0]) > self.rows_tokens_max:
                yield _padded(batch)
                batch = []
            batch.append(row)
        yield _padded(batch)


def _padded(rows):
    length = len(rows[-1][0])
    tokens = [ids + [END_OF_TEXT] * (length - len(ids)) for ids, _ in rows]
    learned = [marks + [False] * (length - len(marks)) for _, marks in rows]
    return tokens, learned
