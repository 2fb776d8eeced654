"""Decoding under a JSON schema: the keys are given, and the model writes strings and numbers.

What an engine does for any schema is done here for the kinds that the lessons have. So it can be
measured whether strings and numbers end.
"""

import json
from functools import cache

import torch

from .tokenizer import END_OF_TURN

_ESCAPED = b'"\\/bfnrt'
_DIGITS = b"0123456789"


class Grammar:
    """The texts that have the keys of `example`, with other values of the same types.

    A state is `(part, place within it)`. A part is text in bytes, or the name of a type.
    """

    def __init__(self, example):
        self.parts = []
        self._add(example)
        joined = []
        for part in self.parts:
            if joined and isinstance(part, bytes) and isinstance(joined[-1], bytes):
                joined[-1] += part
            else:
                joined.append(part)
        self.parts = joined

    def _add(self, example):
        if isinstance(example, (dict, list)):
            is_object = isinstance(example, dict)
            self.parts.append(b"{" if is_object else b"[")
            for i, item in enumerate(example):
                self.parts.append(b", " if i else b"")
                if is_object:
                    self.parts.append(json.dumps(item, ensure_ascii=False).encode() + b": ")
                self._add(example[item] if is_object else item)
            self.parts.append(b"}" if is_object else b"]")
        else:
            self.parts.append(type(example).__name__)

    def after(self, state, text):
        """Returns the state after `text`, or nothing where that is not allowed."""
        for byte in text:
            state = self._after(state, byte)
            if state is None:
                return None
        return state

    def _after(self, state, byte):
        part, place = state
        if part == len(self.parts):
            return None
        kind = self.parts[part]
        if isinstance(kind, bytes):
            if byte != kind[place]:
                return None
            return (part, place + 1) if place + 1 < len(kind) else (part + 1, 0)
        if kind == "str":
            return _in_string(part, place, byte)
        if kind == "bool":
            texts = [t for t in (b"true", b"false") if place == 0 or t[0] == place[0]]
            at = place[1] if place else 0
            found = [t for t in texts if t[at] == byte]
            if not found:
                return None
            return (part + 1, 0) if at + 1 == len(found[0]) else (part, (found[0][0], at + 1))
        return self._in_number(part, place, byte, kind == "float")

    def _in_number(self, part, place, byte, has_point):
        """`place` is 0 at its start, then what it ends in: `-`, `0`, `1` (any digits), `.` or `f`
        (digits behind a point)."""
        if byte in _DIGITS and place != "0":
            if place in (".", "f"):
                return part, "f"
            return part, "0" if byte == _DIGITS[0] and place != "1" else "1"
        if byte == ord("-") and place == 0:
            return part, "-"
        if byte == ord(".") and has_point and place in ("0", "1"):
            return part, "."
        return self._after((part + 1, 0), byte) if place in ("0", "1", "f") else None

    def is_at_end(self, state):
        return state[0] == len(self.parts)


def _in_string(part, place, byte):
    """`place` is 0 before the string, 1 within it, and 2 behind a backslash."""
    if place == 0:
        return (part, 1) if byte == ord('"') else None
    if place == 2:
        return (part, 1) if byte in _ESCAPED else None
    if byte == ord('"'):
        return part + 1, 0
    if byte == ord("\\"):
        return part, 2
    return (part, 1) if byte >= 0x20 else None


@cache
def _byte_of():
    """Returns the byte of each letter by which byte-level tokenizers write it."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


class Constraint:
    """Picks tokens of several rows, each of which its grammar allows."""

    def __init__(self, tokenizer, grammars, pick):
        self.grammars, self.pick = grammars, pick
        self.states, self.masks = [(0, 0)] * len(grammars), {}
        letters = _byte_of()
        self.texts = {}
        for i in range(tokenizer.get_vocab_size()):
            token = tokenizer.id_to_token(i)
            if all(letter in letters for letter in token) and not token.startswith("<|"):
                self.texts[i] = bytes(letters[letter] for letter in token)
        self.by_byte, self.plain = {}, []
        for i, text in self.texts.items():
            self.by_byte.setdefault(text[0], []).append(i)
            if all(byte >= 0x20 and byte not in b'"\\' for byte in text):
                self.plain.append(i)
        self.marked = [i for i in self.texts if i not in set(self.plain)]

    def allowed(self, grammar, state):
        """Returns the tokens that may follow."""
        if grammar.is_at_end(state):
            return [END_OF_TURN]
        if grammar.parts[state[0]] == "str" and state[1] == 1:
            return self.plain + [
                i for i in self.marked if grammar.after(state, self.texts[i]) is not None
            ]
        return [
            i
            for byte, tokens in self.by_byte.items()
            if grammar.after(state, bytes([byte])) is not None
            for i in tokens
            if grammar.after(state, self.texts[i]) is not None
        ]

    def __call__(self, logits):
        for row, state in enumerate(self.states):
            if (row, state) not in self.masks:
                mask = torch.full_like(logits[row], float("-inf"))
                mask[self.allowed(self.grammars[row], state)] = 0.0
                self.masks[row, state] = mask
        masks = [self.masks[row, state] for row, state in enumerate(self.states)]
        picked = self.pick(logits + torch.stack(masks))
        for row, token in enumerate(picked.tolist()):
            if token != END_OF_TURN and not self.grammars[row].is_at_end(self.states[row]):
                self.states[row] = self.grammars[row].after(self.states[row], self.texts[token])
        return picked
