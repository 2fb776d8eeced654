"""Questions about the Lantern Islands, forwards and backwards, in many wordings."""

from . import check, world
from .conversation import one
from .split import capital
from .vocabulary import article, listed
from .world import PEOPLE, REGIONS, TOWN_NAMES, TOWNS

_PLEASE = "[|Please tell me: |Tell me: |Do you know: |I wonder: |Quick question: ]"

PERSON = {
    "town": (
        (
            _PLEASE + "[Where does {x} live|In which town does {x} live|Which town does {x} "
            "live in|Where is the home of {x}|What town is home to {x}]?",
        ),
        "{x} lives in {v}.",
    ),
    "job": (
        (
            _PLEASE + "[What does {x} do for a living|What is the job of {x}|What is {x}'s job|"
            "What does {x} work as|Which trade does {x} have]?",
        ),
        "{x} works as {v}.",
    ),
    "pet": (
        (
            _PLEASE + "[What kind of pet does {x} have|Which animal does {x} keep|What animal "
            "lives with {x}|What pet does {x} own|What sort of animal is {x}'s pet]?",
        ),
        "{x} has a {v}.",
    ),
    "pet_name": (
        (
            _PLEASE + "[What is the name of {x}'s pet|What is {x}'s pet called|What is the pet "
            "of {x} named|What does {x} call {his} pet|Which name did {x} give {his} "
            "pet]?",
        ),
        "{x}'s pet is called {v}.",
    ),
    "food": (
        (
            _PLEASE + "[What does {x} like to eat|What is {x}'s favourite food|Which food does "
            "{x} like best|What does {x} love to eat|What is the favourite dish of "
            "{x}]?",
        ),
        "{x} likes {v} best.",
    ),
    "hobby": (
        (
            _PLEASE + "[What is {x}'s hobby|What does {x} do in {his} free time|What does {x} "
            "do for fun|Which hobby does {x} have|How does {x} spend {his} evenings]?",
        ),
        "{x}'s hobby is {v}.",
    ),
    "sibling": (
        (
            _PLEASE + "[Who is {x}'s {sibling_word}|What is the name of {x}'s {sibling_word}|"
            "Who is the {sibling_word} of {x}|What name does {x}'s {sibling_word} "
            "have|What is {x}'s {sibling_word} called]?",
        ),
        "{x}'s {sibling_word} is {v}.",
    ),
    "teacher": (
        (
            _PLEASE + "[Who taught {x}|Who was {x}'s teacher|Who was the teacher of {x}|From "
            "whom did {x} learn|Whose pupil was {x}]?",
        ),
        "{x} was taught by {v}.",
    ),
}
BY_VALUE = {
    "job": (
        (
            _PLEASE + "[Who is the {v}|Who works as {v}|What is the name of the {v}|What do "
            "people call the {v}|Who on the islands is the {v}]?",
        ),
        "The {v} is {x}.",
    ),
    "pet_name": (
        (
            _PLEASE + "[Whose pet is {v}|Who owns {v}|Who does the pet {v} belong to|Whose pet "
            "is called {v}|Who keeps a pet called {v}]?",
        ),
        "{v} belongs to {x}.",
    ),
    "food": (
        (
            _PLEASE + "[Who likes {v} best|Whose favourite food is {v}|Who loves {v}|Who likes "
            "to eat {v}|Who is fond of {v}]?",
        ),
        "{x} likes {v} best.",
    ),
    "teacher": (
        (
            _PLEASE + "[Whom did {v} teach|Who was taught by {v}|Who was {v}'s pupil|Who "
            "learned from {v}|Who was the pupil of {v}]?",
        ),
        "{v} taught {x}.",
    ),
}
TOWN = {
    "region": (
        (
            _PLEASE + "[Where is {x}|Where does {x} lie|Where can I find {x}|In what place is "
            "{x}|Where on the islands is {x}]?",
        ),
        "{x} lies {v}.",
    ),
    "landmark": (
        (
            _PLEASE + "[What is {x} known for|What is {x} famous for|What can one see in {x}|"
            "What is the landmark of {x}|What should I visit in {x}]?",
        ),
        "{x} is known for its {v}.",
    ),
    "festival": (
        (
            _PLEASE + "[When is the festival of {x}|In which month does {x} have its festival|"
            "When does {x} celebrate|What month is the festival in {x}|When is {x}'s "
            "festival]?",
        ),
        "The festival of {x} is in {v}.",
    ),
    "colour": (
        (
            _PLEASE + "[What colour is the flag of {x}|Which colour has {x}'s flag|What is the "
            "colour of the flag of {x}|What colour is {x}'s flag|How does the flag "
            "of {x} look]?",
        ),
        "The flag of {x} is {v}.",
    ),
    "neighbour": (
        (
            _PLEASE + "[Which town is next to {x}|What is the neighbour of {x}|Which town lies "
            "beside {x}|What town is closest to {x}|Where does the road from {x} "
            "lead]?",
        ),
        "The road from {x} leads to {v}.",
    ),
    "mayor": (
        (
            _PLEASE + "[Who is the mayor of {x}|What is the name of {x}'s mayor|Who is {x}'s "
            "mayor|Who governs {x}|What do people call the mayor of {x}]?",
        ),
        "The mayor of {x} is {v}.",
    ),
}
BY_TOWN_VALUE = {
    "landmark": (
        (
            _PLEASE + "[Which town has a {v}|Where is the {v}|Where can I see the {v}|Which "
            "town is known for its {v}|In what town is the {v}]?",
        ),
        "The {v} is in {x}.",
    ),
    "festival": (
        (
            _PLEASE + "[Which town has its festival in {v}|Where is there a festival in {v}|"
            "Who celebrates in {v}|Which festival is in {v}|What town celebrates in "
            "{v}]?",
        ),
        "In {v}, {x} has its festival.",
    ),
    "colour": (
        (
            _PLEASE + "[Which town has a {v} flag|Whose flag is {v}|What town has the {v} flag|"
            "Which town's flag is {v}|Where does the {v} flag fly]?",
        ),
        "The {v} flag is that of {x}.",
    ),
    "mayor": (
        (
            _PLEASE + "[Of which town is {v} the mayor|Where is {v} mayor|Which town does {v} "
            "govern|Which town has {v} as its mayor|What town is {v} the mayor of]?",
        ),
        "{v} is the mayor of {x}.",
    ),
}
RESIDENTS = (
    _PLEASE + "[Who lives in {x}|Which people live in {x}|Who are the people of {x}|"
    "What are the names of the people in {x}|Who has a home in {x}]?",
)
ABOUT = (
    "[Tell me about|What do you know about|Please tell me about|Describe|Who "
    "is|Introduce] {x}[.|, please.|!]",
)
TOWN_LIST = (
    _PLEASE + "[Which towns are there|What towns do you know|What are the towns of the "
    "Lantern Islands|Name the towns|Which towns are on the islands]?",
)


def lesson(rng, split):
    kind = rng.random()
    if kind < 0.5:
        return person_fact(rng, split, rng.choice(PEOPLE), rng.choice(list(PERSON)))
    if kind < 0.7:
        return _inverse(rng, split)
    if kind < 0.82:
        return _town_fact(rng, split)
    if kind < 0.9:
        return _town_inverse(rng, split)
    return _summary(rng, split)


def slots(person):
    return {"x": person.name, "his": person.his, "sibling_word": person.sibling_word}


def value_of(person, relation):
    """Returns the words for it in an answer: `a baker`."""
    value = getattr(person, relation)
    return f"{article(value)} {value}" if relation == "job" else value


def others(relation):
    return {getattr(person, relation) for person in PEOPLE}


def person_answer(person, relation):
    return PERSON[relation][1].format(v=value_of(person, relation), **slots(person))


def person_check(person, relation):
    mentioned = {person.name} if relation in ("sibling", "teacher") else set()
    return check.says(getattr(person, relation), others=sorted(others(relation) - mentioned))


def person_fact(rng, split, person, relation):
    question = split.say(rng, *PERSON[relation][0], **slots(person))
    return one(question, person_answer(person, relation), person_check(person, relation))


def _inverse(rng, split):
    relation = rng.choice(list(BY_VALUE))
    person = rng.choice(PEOPLE)
    value = getattr(person, relation)
    templates, answer = BY_VALUE[relation]
    question = split.say(rng, *templates, v=value)
    wrong = [name for name in world.NAMES if name != value]
    return one(
        question,
        capital(answer.format(x=person.name, v=value)),
        check.says(person.name, others=wrong),
    )


def _town_value(town, relation):
    value = getattr(town, relation)
    return REGIONS[value] if relation == "region" else value


def _town_fact(rng, split):
    relation, town = rng.choice(list(TOWN)), rng.choice(TOWNS)
    templates, answer = TOWN[relation]
    value = _town_value(town, relation)
    question = split.say(rng, *templates, x=town.name)
    wrong = {_town_value(t, relation) for t in TOWNS} - {town.name}
    return one(
        question, answer.format(x=town.name, v=value), check.says(value, others=sorted(wrong))
    )


def _town_inverse(rng, split):
    relation, town = rng.choice(list(BY_TOWN_VALUE)), rng.choice(TOWNS)
    templates, answer = BY_TOWN_VALUE[relation]
    value = _town_value(town, relation)
    question = split.say(rng, *templates, v=value)
    return one(
        question, answer.format(x=town.name, v=value), check.says(town.name, others=TOWN_NAMES)
    )


def _summary(rng, split):
    kind = rng.random()
    if kind < 0.2:
        names = listed(TOWN_NAMES)
        return one(split.say(rng, *TOWN_LIST), f"The towns are {names}.", check.says(*TOWN_NAMES))
    if kind < 0.5:
        town = rng.choice(TOWNS)
        names = world.residents(town.name)
        question = split.say(rng, *RESIDENTS, x=town.name)
        check_ = check.says(*names, others=world.NAMES)
        return one(question, f"In {town.name} live {listed(names)}.", check_)
    if kind < 0.6:
        town = rng.choice(TOWNS)
        answer = (
            f"{town.name} is a town {REGIONS[town.region]}. It is known for its {town.landmark}, "
            f"and its festival is in {town.festival}. The mayor is {town.mayor}."
        )
        told = check.says(REGIONS[town.region], town.landmark, town.festival, town.mayor)
        return one(split.say(rng, *ABOUT, x=town.name), answer, told)
    person = rng.choice(PEOPLE)
    return one(split.say(rng, *ABOUT, x=person.name), about(person), about_check(person))


def about(person):
    subject = person.pronoun.capitalize()
    return (
        f"{person.name} lives in {person.town} and works as {value_of(person, 'job')}. "
        f"{subject} has a {person.pet} called {person.pet_name} and likes {person.food} best."
    )


def about_check(person):
    return check.says(person.town, person.job, person.pet, person.pet_name, person.food)
