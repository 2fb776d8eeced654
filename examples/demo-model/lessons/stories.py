"""Short stories with a name, a place and a cause: told, and asked about."""

from . import check
from .conversation import Conversation, one
from .split import capital
from .vocabulary import article, invented_name
from .world import BY_NAME, NAMES

PLACES = (
    "forest|garden|harbour|library|market|mill|castle|village|valley|theatre|kitchen|school|farm|"
    "lighthouse|bakery|meadow|workshop|station|museum|beach"
).split("|")
ANIMALS = "fox owl mouse rabbit crow hedgehog goose badger otter squirrel donkey frog".split()
# the lost thing, the place where it turns up
LOST = {
    "key": "under a stone",
    "lamp": "behind the door",
    "book": "on a bench",
    "hat": "in a tree",
    "ring": "in the grass",
    "kite": "on a roof",
    "map": "in an old box",
    "bell": "under the bridge",
    "drum": "behind a hedge",
    "letter": "between two books",
    "scarf": "on a fence",
    "ball": "in a ditch",
    "violin": "in a cupboard",
    "compass": "beside the well",
    "basket": "on the stairs",
    "spoon": "in a pot",
}
# a feeling, its reason, and its end
TROUBLES = [
    ("sad", "the {thing} was gone", "found"),
    ("worried", "the {thing} was lost", "found"),
    ("angry", "somebody had taken the {thing}", "found"),
    ("tired", "the way to the {place} was long", "rested"),
    ("afraid", "it was dark in the {place}", "lit"),
    ("lonely", "nobody was in the {place}", "friends"),
    ("bored", "it rained all day", "played"),
    ("hungry", "there was no bread left", "shared"),
]
OPENINGS = [
    "One morning, {name} went to the {place}.",
    "Once upon a time, {name} came to the {place}.",
    "Long ago, {name} lived near the {place}.",
    "On a windy day, {name} walked to the {place}.",
]
ENDINGS = {
    "found": [
        "The {animal} helped, and they found the {thing} {where}.",
        "A friendly {animal} looked everywhere and found the {thing} {where}.",
    ],
    "rested": [
        "Then {an_animal} came with a cart and took {him} home.",
        "{An_animal} offered {him} a chair, and they rested together.",
    ],
    "lit": [
        "Then {an_animal} brought a lantern, and it was bright.",
        "{An_animal} lit a candle, and the dark was gone.",
    ],
    "friends": [
        "Then {an_animal} came along, and they became friends.",
        "A shy {animal} sat down with {him}, and they talked for hours.",
    ],
    "played": [
        "Then {an_animal} knocked, and they played until the evening.",
        "{An_animal} brought a game, and they laughed a lot.",
    ],
    "shared": [
        "Then {an_animal} came and shared its soup with {him}.",
        "A kind {animal} gave {him} half of its cake.",
    ],
}
MORALS = [
    "From that day on, {name} was never {feeling} again.",
    "{name} thanked the {animal} and went home happy.",
    "And that evening {name} smiled.",
]
REQUESTS = (
    "[Tell|Write|Please tell|Please write|Can you tell] me a [|short |little "
    "|nice ]story about {name} [in|at] the {place}[.|?|, please.]",
    "[I would like|I want|Give me|Let me hear] a [|short |little ]story "
    "about {name} and the {place}[.|, please.]",
)
WITH_THING = (
    "[Tell|Write|Please tell|Please write|Can you tell] me a [|short |little "
    "|nice ]story about {name}, the {place} and a {thing}[.|?|, please.]",
    "[Make up|Invent] a [|short |little |nice ]story [with|about] {name}, a "
    "{thing} and the {place}[.|!]",
)
_TELL = "[|Tell me: |Please tell me: |One question: |So: ]"
ASK = {
    "who": (
        (
            _TELL + "[Who is|Who was] the [story|tale] about?",
            _TELL + "[What is|What was] the name of the [hero|main person|person in the story]?",
            _TELL + "[About whom|Of whom] [is|was] the [story|tale]?",
        ),
        "The story is about {name}.",
    ),
    "where": (
        (
            _TELL + "Where [does|did] [the story|it|all this|the tale] [happen|take place]?",
            _TELL + "[In what place|At what place|Where] was {name}?",
        ),
        "It happens at the {place}.",
    ),
    "why": (
        (
            _TELL + "Why [was|is] {name} {feeling}?",
            _TELL + "[What made {name} {feeling}|What was the reason that {name} was "
            "{feeling}|For what reason was {name} {feeling}|How come {name} was "
            "{feeling}]?",
        ),
        "{name} was {feeling} because {cause}.",
    ),
    "animal": (
        (
            _TELL + "[Which animal|What animal] [helped|came|is in the story|was there|appears]?",
            _TELL + "[Who helped|Who came to|Who was there with|Who was with|Which animal helped|"
            "What animal was with] {name}[?| in the end?| then?]",
        ),
        "It was {an_animal}.",
    ),
    "feeling": (
        (
            _TELL + "How did {name} feel[| at first| in the beginning]?",
            _TELL + "[What did {name} feel|In what mood was {name}|How was {name}][| at first]?",
        ),
        "{name} was {feeling}.",
    ),
}
ANY = (
    "[Tell|Write|Please tell|Please write|Can you tell] me [a|another] [|short |little "
    "|nice ]story[.|?|, please.]",
    "[I would like|I want|Give me|Let me hear|Make up|Invent] [a|another] [|short |little "
    "|nice ]story[.|, please.]",
)
READ = (
    "[Read|Please read|Listen to|Here is|This is] [a story|a short story|a little story|my story]: "
    "{story} {question}",
    "{story} [Question:|My question:|Now a question:|I ask you:] {question}",
)


def lesson(rng, split):
    kind = rng.random()
    plot = new_plot(rng, split)
    if kind < 0.45:
        return told(rng, split, plot)
    if kind < 0.7:
        return read(rng, split, plot)
    return told(rng, split, plot).then(ask(rng, split, plot))


def new_plot(rng, split):
    def make():
        known = rng.random() < 0.3
        name = rng.choice(NAMES) if known else invented_name(rng)[0]
        return name, rng.choice(PLACES), rng.choice(list(LOST)), rng.choice(ANIMALS)

    name, place, thing, animal = split.draw(make, "plot")
    she = (
        BY_NAME[name].pronoun == "she"
        if name in BY_NAME
        else name[-1] in "a" or name.endswith("elle")
    )
    feeling, cause, end = rng.choice(TROUBLES)
    slots = {"name": name, "place": place, "thing": thing, "animal": animal, "feeling": feeling}
    an_animal = f"{article(animal)} {animal}"
    slots |= {"an_animal": an_animal, "An_animal": capital(an_animal)}
    slots |= {"him": "her" if she else "him", "he": "she" if she else "he", "where": LOST[thing]}
    slots["cause"] = cause.format(**slots)
    parts = [
        rng.choice(OPENINGS),
        "{name} was {feeling} because {cause}.",
        rng.choice(ENDINGS[end]),
        rng.choice(MORALS),
    ]
    slots["has_thing"] = "{thing}" in cause
    slots["text"] = " ".join(part.format(**slots) for part in parts)
    return slots


def told(rng, split, plot):
    """Returns a request for the story, and the story."""
    if rng.random() < 0.2:
        return one(split.say(rng, *ANY), plot["text"], check.story("because"))
    templates = WITH_THING if plot["has_thing"] else REQUESTS
    request = split.say(rng, *templates, **plot)
    return one(request, plot["text"], story_check(plot))


def story_check(plot):
    thing = [plot["thing"]] if plot["has_thing"] else []
    return check.story(plot["name"], plot["place"], "because", *thing)


def ask(rng, split, plot):
    """Returns a question about the story and its answer."""
    key = rng.choice(list(ASK))
    templates, answer = ASK[key]
    question = split.say(rng, *templates, **plot)
    return one(question, answer.format(**plot), answer_check(key, plot))


def answer_check(key, plot):
    value = {
        "who": "name",
        "where": "place",
        "why": "cause",
        "animal": "animal",
        "feeling": "feeling",
    }[key]
    return check.says(plot[value])


def read(rng, split, plot):
    """Returns a story that the user tells, with a question behind it."""
    question = ask(rng, split, plot)
    text = split.say(rng, *READ, story=plot["text"], question=question.messages[0]["content"])
    return Conversation().turn(text, question.messages[1]["content"], question.checks[0])
