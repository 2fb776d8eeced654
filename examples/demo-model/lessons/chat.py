"""Conversations of several turns: skills mixed, and references to earlier turns."""

from . import arithmetic, check, facts, letters, sorting, stories, talk, unknown
from .conversation import Conversation, one
from .vocabulary import COMMON, invented_name
from .world import PEOPLE

_MEET = ("[Hello|Hi|Hey|Good day][!|,|.] [I am|My name is|I'm|People call me] {name}.",)
_MY_NAME = (
    "[What is|What's|Do you remember|Do you know|Can you tell me|Tell me] my name[| again| now]?",
    "[|Tell me: |And ][who am I|what am I called|what do people call me|what did I say my name was]?",
)
_REMEMBER = (
    "[Remember|Please remember|Keep in mind|Note|Please note] the word {word}[.|, please.|!]",
)
_WHICH_WORD = (
    "[Which word|What word] [did I ask you to remember|should you remember|"
    "did I tell you|was it|did I give you]?",
    "[What was|Tell me|Say] the word [again|I gave you|from before][?|, please?]",
)
_MORE = {
    "+": (
        "[And if you|Now|And|Then|Next,] [add|please add] {b}[?|.| to that.| more.]",
        "[And|Now] [plus {b}|{b} more]?",
    ),
    "-": (
        "[And if you|Now|And|Then|Next,] [take away|subtract|take off] {b}[?|.| from that.]",
        "[And|Now] [minus {b}|{b} less]?",
    ),
}
_AND_HE = {
    "town": ("[And where|Where] does {he} live?", "[And in|In] which town does {he} live?"),
    "job": ("[And what|What] does {he} do for a living?", "[And what|What] is {his} job?"),
    "pet_name": (
        "[And what|What] is {his} pet called?",
        "[And what|What] is the name of {his} pet?",
    ),
    "food": ("[And what|What] does {he} like to eat?", "[And what|What] is {his} favourite food?"),
    "hobby": ("[And what|What] is {his} hobby?", "[And what|What] does {he} do for fun?"),
}
_DOWN = (
    "[And|Now|Now sort them|And sorted] [from large to small|in descending "
    "order|from largest to smallest][.|, please.|?]",
)
_WHICH = ("[And which|Which|So which|Now which] [one is|is|number is] the {which}[?| of them?]",)
_BACKWARDS = (
    "[And|Now|Now write it|And spell it|Now spell it] [backwards|in reverse|"
    "from the end][.|, please.|?]",
)


def lesson(rng, split):
    conversation = Conversation()
    name = None
    if rng.random() < 0.5:
        name = split.draw(lambda: invented_name(rng)[0], "user")
        conversation.turn(
            split.say(rng, *_MEET, name=name),
            f"Hello {name}! How can I help you?",
            check.says(name),
        )
    parts = [_calculation, _person, _sorted, _spelled, _story, _small_talk, _beyond, _memory]
    for part in rng.sample(parts, rng.randint(1, 2)):
        conversation.then(part(rng, split))
    if name:
        conversation.turn(split.say(rng, *_MY_NAME), f"Your name is {name}.", check.says(name))
    elif len(conversation.checks) < 3:
        conversation.then(_person(rng, split))
    if rng.random() < 0.3:
        conversation.then(talk.of(rng, split, rng.choice(["thanks", "goodbye"])))
    return conversation


def _calculation(rng, split):
    op = rng.choice("+-")
    a, b = arithmetic.held_pair(rng, split, op)
    question = split.say(rng, *arithmetic.DIRECT[op], a=a, b=b)
    conversation = arithmetic.answered(question, a, b, op)
    total = arithmetic.RESULT[op](a, b)
    for _ in range(rng.randint(1, 2)):
        op = "+" if total < 1 else rng.choice("+-")
        b = rng.randint(1, min(99, total) if op == "-" else 99)
        if arithmetic.by_heart(total, b, op) or split.keeps("sum", op, (total, b)):
            question = split.say(rng, *_MORE[op], b=b)
            conversation.then(arithmetic.answered(question, total, b, op))
            total = arithmetic.RESULT[op](total, b)
    return conversation


def _person(rng, split):
    person = rng.choice(PEOPLE)
    first, second, third = rng.sample(list(_AND_HE), 3)
    conversation = facts.person_fact(rng, split, person, first)
    for relation in [second, third][: rng.randint(1, 2)]:
        question = split.say(rng, *_AND_HE[relation], he=person.pronoun, his=person.his)
        answer = facts.person_answer(person, relation)
        conversation.turn(question, answer, facts.person_check(person, relation))
    return conversation


def _sorted(rng, split):
    items = split.draw(lambda: sorting.some_numbers(rng), "sort")
    question = split.say(rng, *sorting.UP, items=sorting.told(items))
    conversation = sorting.in_order(question, items)
    up = sorted(items)
    if rng.random() < 0.5:
        return conversation.then(sorting.turned(split.say(rng, *_DOWN), up, check.numbers))
    which = rng.choice(["largest", "smallest"])
    value = up[-1] if which == "largest" else up[0]
    question = split.say(rng, *_WHICH, which=which)
    return conversation.turn(question, f"The {which} is {value}.", check.number(value))


def _spelled(rng, split):
    word = letters.word(rng, split)
    there, back = letters.spelled(word), letters.spelled(word[::-1])
    question = split.say(rng, *letters.SPELL, word=letters.quoted(word))
    conversation = one(question, f"{there}.", check.letters(there))
    return conversation.turn(split.say(rng, *_BACKWARDS), f"{back}.", check.letters(back))


def _story(rng, split):
    plot = stories.new_plot(rng, split)
    return stories.told(rng, split, plot).then(stories.ask(rng, split, plot))


def _small_talk(rng, split):
    return talk.lesson(rng, split)


def _beyond(rng, split):
    return unknown.lesson(rng, split)


def _memory(rng, split):
    word = split.draw(lambda: rng.choice(COMMON), "memory")
    question = split.say(rng, *_REMEMBER, word=word)
    conversation = one(question, f"I will remember {word}.", check.says(word))
    middle = talk.lesson(rng, split)
    conversation.then(middle)
    return conversation.turn(
        split.say(rng, *_WHICH_WORD), f"The word was {word}.", check.says(word)
    )
