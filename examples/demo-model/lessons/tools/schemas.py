"""Descriptions of tools as programs send them: many names, keys and styles of one kind of tool."""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Parameter:
    """A parameter under one of several keys. Of the keys and texts, the last is held out."""

    keys: tuple
    texts: tuple
    type: str = "string"
    choices: tuple = ()
    """Lists of values to choose from, of which a schema has one."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of tool, and what is asked of it."""

    names: tuple
    """Templates of names in snake case, one in ten held out. `[a|b]` is a choice."""
    texts: tuple
    parameters: dict
    make: callable
    """Returns all arguments by parameter, from `(rng, split, source, offered)`."""
    questions: tuple
    """Wordings without a mark at their end."""
    suffixes: dict = field(default_factory=dict)
    """Wordings that tell an argument that need not be told."""
    result: callable = None
    """Returns the tool's result and its meaning, from `(rng, arguments)`."""
    ends: str = "[?|.|!|, please.]"


@dataclass
class Offered:
    """A tool as it is offered."""

    kind: Kind
    name: str
    keys: dict
    """The key of each parameter that this tool has."""
    choices: dict
    schema: dict

    def call(self, arguments):
        """Returns the call with `arguments`, which are by parameter."""
        told = {key: arguments[name] for name, key in self.keys.items() if name in arguments}
        return {"name": self.name, "arguments": told}


_NAMES_TRIED = 300
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def offer(rng, split, kind):
    """Returns a tool of this kind under a name, keys and texts of this side of the split."""
    name = _name(rng, split, kind)
    style = rng.random()
    keys, choices, properties, required = {}, {}, {}, []
    for parameter, shape in kind.parameters.items():
        is_optional = parameter in kind.suffixes
        if is_optional and rng.random() < 0.5:
            continue
        key = _one(rng, split, shape.keys)
        if style > 0.9:
            key = _camel(key)
        described = {"type": shape.type}
        if shape.choices:
            choices[parameter] = rng.choice(shape.choices)
            described["enum"] = list(choices[parameter])
        if rng.random() < 0.5:
            described["description"] = _one(rng, split, shape.texts)
        if style < 0.1:
            described = {"title": key.replace("_", " ").title()} | described
        if rng.random() < 0.2:
            described = dict(sorted(described.items()))
        keys[parameter], properties[key] = key, described
        if not is_optional:
            required.append(key)
    parameters = {"type": "object", "properties": properties}
    if required or rng.random() < 0.5:
        parameters["required"] = required
    if rng.random() < 0.15:
        parameters["additionalProperties"] = False
    if rng.random() < 0.1:
        parameters = dict(sorted(parameters.items()))
    function = {"name": name}
    if rng.random() < 0.9:
        function["description"] = _one(rng, split, kind.texts) + rng.choice(["", "", "."])
    function["parameters"] = parameters
    return Offered(kind, name, keys, choices, {"type": "function", "function": function})


def _name(rng, split, kind):
    """Returns a name of this side. A kind of few names may have none that is held out."""
    for _ in range(_NAMES_TRIED):
        name = _styled(rng, _chosen(rng, rng.choice(kind.names)))
        if split.keeps("tool name", name):
            return name
    assert split.held_out, f"all names are held out: {kind.names}"
    return name


def _one(rng, split, items):
    """Returns one of `items`, of which the last is held out."""
    if len(items) == 1:
        return items[0]
    if split.held_out and rng.random() < 0.5:
        return items[-1]
    return rng.choice(items[:-1])


def _chosen(rng, template):
    return _CHOICE.sub(lambda found: rng.choice(found.group(1).split("|")), template)


def _camel(name):
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _styled(rng, name):
    style = rng.random()
    if style < 0.75:
        return name
    if style < 0.9:
        return _camel(name)
    return name.replace("_", "-") if style < 0.95 else name.title().replace("_", "")
