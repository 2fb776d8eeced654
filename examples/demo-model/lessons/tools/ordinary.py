"""Ordinary tools under many schemas: one call, several at once, or none that fits."""

import json

from .. import arithmetic, check, facts, talk, unknown
from ..conversation import Conversation
from ..split import capital
from ..world import PEOPLE
from .kinds import MAIL, NOW, OTHERS, SEARCH, TIME, WEATHER, ZONE
from .lookups import ACTIONS, ATTRIBUTES, HELD_OUT
from .numbers import CALCULATORS, EXPRESSIONS, SINGLE
from .schemas import offer
from .words import PLAIN, city

FAMILIES = {
    "weather": ([WEATHER], 3.0),
    "time": ([TIME, TIME, ZONE, NOW], 2.5),
    "search": ([SEARCH], 3.0),
    "arithmetic": ([*SINGLE, *CALCULATORS * 2, *EXPRESSIONS * 2], 3.5),
    "mail": ([MAIL], 2.5),
    "attributes": (ATTRIBUTES, 2.0),
    "actions": (ACTIONS, 1.5),
    "others": (OTHERS, 2.0),
}
NO_TOOL = "I have no tool for that."
_AND_PLACE = (
    "[And|And what about|What about|How about|And how about|Now] [in |]{place}[?|, please?]",
)
_UNITS = ("celsius", "fahrenheit")


def families(rng, count, without=()):
    """Returns `count` different families of tools by their shares."""
    left = [name for name in FAMILIES if name not in without]
    chosen = []
    while len(chosen) < count:
        chosen.append(rng.choices(left, [FAMILIES[name][1] for name in left])[0])
        left.remove(chosen[-1])
    return chosen


def family_of(kind):
    return next(name for name, (kinds, _) in FAMILIES.items() if kind in kinds)


def kind_of(rng, split, family):
    kinds = FAMILIES[family][0]
    if kinds is ATTRIBUTES or kinds is ACTIONS:
        if split.held_out and rng.random() < 0.5:
            return rng.choice(kinds[-HELD_OUT:])
        return rng.choice(kinds[:-HELD_OUT])
    return rng.choice(kinds)


def offered_with(rng, split, kinds):
    """Returns a tool of each kind, under names that differ."""
    tools, names = [], set()
    for kind in kinds:
        tool = offer(rng, split, kind)
        while tool.name in names:
            tool = offer(rng, split, kind)
        names.add(tool.name)
        tools.append(tool)
    return tools


def shuffled(rng, tools):
    return [tool.schema for tool in rng.sample(tools, len(tools))]


def others(rng, split, family, kind, most=3):
    """Returns kinds of tools that stand beside this one, and do not what it does."""
    count = rng.choice([0, 0, 0, 1, 1, 2, most])
    beside = [kind_of(rng, split, other) for other in families(rng, count, without=(family,))]
    if kind in SINGLE and rng.random() < 0.5:
        beside.append(rng.choice([k for k in SINGLE if k.names != kind.names]))
    if family in ("attributes", "actions") and rng.random() < 0.5:
        like = kind_of(rng, split, family)
        beside += [like] if like is not kind else []
    return beside


def request(rng, split, tool, source, ends=True):
    """Returns a wording, the arguments that it tells, and all that were made up."""
    kind = tool.kind
    made = kind.make(rng, split, source, tool)
    told = {name: made[name] for name in tool.keys if name not in kind.suffixes}
    templates, slots = kind.questions, dict(made)
    for name, wordings in kind.suffixes.items():
        if name in tool.keys and rng.random() < 0.5:
            told[name] = made[name]
        elif not (name == "unit" and name not in tool.keys and rng.random() < 0.1):
            continue
        slots[name] = made.get(name, rng.choice(_UNITS))
        if slots[name] in _UNITS and rng.random() < 0.7:
            slots[name] = capital(slots[name])
        templates = tuple(each + wording for each in templates for wording in wordings)
    if "query" in slots and rng.random() < 0.15:
        slots["query"] = f'"{slots["query"]}"'
    if ends:
        templates = tuple(each + kind.ends for each in templates)
    return split.say(rng, *templates, **slots), told, made


def lesson(rng, split, source=PLAIN):
    """Returns a question for one tool, and often what comes after the call."""
    family, = families(rng, 1)
    kind = kind_of(rng, split, family)
    tools = offered_with(rng, split, [kind, *others(rng, split, family, kind)])
    conversation = Conversation(tools=shuffled(rng, tools))
    _ask(rng, split, conversation, tools[0], source)
    return _more(rng, split, conversation, tools, source)


def _more(rng, split, conversation, tools, source):
    """Adds questions for the same tools, in training: the descriptions of tools are long, and
    nothing of them is learned. A test has one question, so that one mistake is counted once."""
    while not split.held_out and rng.random() < 0.75 and len(conversation.checks) < 8:
        tool, kind = rng.choice(tools), rng.random()
        if kind < 0.2:
            _ask_in_vain(rng, split, conversation, tools, source)
        elif kind < 0.45 and place_of(tool):
            _ask_of_several(rng, split, conversation, tool, source)
        else:
            _ask(rng, split, conversation, tool, source)
    return conversation


def place_of(tool):
    """Returns the parameter of a tool that takes one of several places, if it has one."""
    if tool.kind in (WEATHER, TIME):
        return "place"
    return "of" if tool.kind in ATTRIBUTES else None


def _ask(rng, split, conversation, tool, source):
    """Adds a question for `tool`, its call, and often what follows from it."""
    question, told, made = request(rng, split, tool, source)
    call = tool.call(told)
    conversation.is_exact |= tool.kind is MAIL
    conversation.user(question).answer("", check.calls([call]), calls=[call])
    after = rng.random()
    if after < 0.4:
        _answer_to(rng, conversation, tool, made)
        if tool.kind in (WEATHER, TIME) and after < 0.12:
            place = city(rng, split, source)
            call = tool.call({"place": place})
            conversation.user(split.say(rng, *_AND_PLACE, place=place))
            conversation.answer("", check.calls([call]), calls=[call])


def _answer_to(rng, conversation, tool, made):
    """Adds the result of the call, and what it means."""
    result, meaning = tool.kind.result(rng, made)
    if rng.random() < 0.25:
        # Some programs give text in place of JSON. It is repeated.
        conversation.tool(meaning).answer(meaning, check.says(meaning.rstrip(".")))
    else:
        conversation.tool(json.dumps(result)).answer(meaning, check.says(meaning.rstrip(".")))


def parallel(rng, split, source=PLAIN):
    """Returns a question that takes two or three calls at once."""
    if rng.random() < 0.55:
        return _same_tool(rng, split, source)
    return _two_tools(rng, split, source)


def _same_tool(rng, split, source):
    """Returns one question about several places."""
    family = rng.choice(["weather", "weather", "time", "attributes"])
    kind = {"weather": WEATHER, "time": TIME}.get(family) or kind_of(rng, split, family)
    tools = offered_with(rng, split, [kind, *others(rng, split, family, kind, most=1)])
    conversation = Conversation(tools=shuffled(rng, tools))
    _ask_of_several(rng, split, conversation, tools[0], source)
    return _more(rng, split, conversation, tools, source)


def _ask_of_several(rng, split, conversation, tool, source):
    """Adds a question about two or three places, the calls, and often what follows from them."""
    kind, slot, places = tool.kind, place_of(tool), []
    count = rng.choice([2, 2, 3])
    while len(places) < count:
        place = city(rng, split, source)
        if place not in places:
            places.append(place)
    told = f"{', '.join(places[:-1])} and {places[-1]}"
    if len(places) == 2 and rng.random() < 0.15:
        told = f"both {told}"
    templates = tuple(each + kind.ends for each in kind.questions)
    calls = [tool.call({slot: place}) for place in places]
    conversation.user(split.say(rng, *templates, **{slot: told}))
    conversation.answer("", check.calls(calls), calls=calls)
    if rng.random() < 0.3:
        meanings = []
        for place in places:
            result, meaning = kind.result(rng, {slot: place})
            conversation.tool(json.dumps(result))
            meanings.append(meaning)
        said = " ".join(meanings)
        conversation.answer(said, check.says(said.rstrip(".")))


def _two_tools(rng, split, source):
    """Returns two questions in one sentence."""
    chosen = families(rng, 2, without=("mail",))
    if "arithmetic" in chosen and rng.random() < 0.3:
        kinds = rng.sample(SINGLE, 2)
        while kinds[0].names == kinds[1].names:
            kinds = rng.sample(SINGLE, 2)
    else:
        kinds = [kind_of(rng, split, family) for family in chosen]
    tools = offered_with(rng, split, kinds)
    asked = [request(rng, split, tool, source, ends=False) for tool in tools]
    (first, *_), (second, *_) = asked
    joint = rng.choice([" and ", " and ", ", and ", ". ", "? ", ", then "])
    second = second if joint[0] in ".?" else second[:1].lower() + second[1:]
    calls = [tool.call(told) for tool, (_, told, _) in zip(tools, asked)]
    conversation = Conversation(tools=shuffled(rng, tools))
    question = first + joint + second + rng.choice(["?", ".", ""])
    conversation.user(question).answer("", check.calls(calls), calls=calls)
    return _more(rng, split, conversation, tools, source)


def required(rng, split, source=PLAIN):
    """Returns a question that must be answered by calls, as engines force them: a list in JSON, of
    which the keys are given."""
    asked = (parallel if rng.random() < 0.25 else lesson)(rng, split, source)
    question, answer = asked.messages[:2]
    calls = [
        {"name": call["function"]["name"], "parameters": call["function"]["arguments"]}
        for call in answer["tool_calls"]
    ]
    conversation = Conversation(tools=asked.tools, is_exact=asked.is_exact, is_given_keys=True)
    text = json.dumps(calls, ensure_ascii=False)
    return conversation.user(question["content"]).answer(text, check.data(calls))


def no_tool(rng, split, source=PLAIN):
    """Returns a question for which no tool is offered. What the model knows, it answers."""
    known = rng.random() < 0.35
    without = ("arithmetic",) if known else ()
    beside = families(rng, rng.choice([1, 1, 2, 3]), without)
    tools = offered_with(rng, split, [kind_of(rng, split, family) for family in beside])
    conversation = Conversation(tools=shuffled(rng, tools))
    if known:
        return conversation.then(_known(rng, split))
    _ask_in_vain(rng, split, conversation, tools, source)
    return _more(rng, split, conversation, tools, source)


def _ask_in_vain(rng, split, conversation, tools, source):
    """Adds a question for which there is none of the tools."""
    offered = {family_of(tool.kind) for tool in tools}
    # A search may find most things.
    left = [name for name in FAMILIES if name not in offered and name != "arithmetic"]
    left = [name for name in left if "search" not in offered or name in ("mail", "search")]
    if not left or ("search" not in offered and rng.random() < 0.2):
        question = unknown.question(rng, split, of_subject="search" not in offered)
    else:
        family = rng.choices(left, [FAMILIES[name][1] for name in left])[0]
        missing = offer(rng, split, kind_of(rng, split, family))
        question, *_ = request(rng, split, missing, source)
        conversation.is_exact |= family == "mail"
    conversation.user(question).answer(NO_TOOL, check.says("no tool"))


def _known(rng, split):
    kind = rng.random()
    if kind < 0.35:
        return facts.person_fact(rng, split, rng.choice(PEOPLE), rng.choice(list(facts.PERSON)))
    if kind < 0.75:
        return talk.of(rng, split, rng.choice([name for name in talk.INTENTS if name != "weather"]))
    return arithmetic.lesson(rng, split)
