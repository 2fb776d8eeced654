"""Texts that belong together: a question and its answer, two wordings of a question, a few words of a
sentence and the sentence. An embedding is trained on them."""

import random
import re
from dataclasses import dataclass, replace

from . import facts, stories, talk, world
from .split import digest
from .vocabulary import COMMON, invented_name, syllables

SUMMARY = ("town", "job", "pet", "pet_name", "food")
"""The facts of a summary of a person."""
GROUP = 4
"""Pairs of one subject. Each of them has to be told apart from the others."""


@dataclass(frozen=True)
class Pair:
    """A query with the text that it is about."""

    query: str
    document: str
    cue: tuple = ()
    """The fact by whose value the query asks: `("job", "baker")`."""
    facts: tuple = ()
    """The facts that the document states."""

    def is_answered_by(self, other):
        """Returns whether the document of another pair is as good an answer."""
        return self.document == other.document or bool(self.cue) and self.cue in other.facts


def group(seed, index, split, kinds=None):
    """Returns the pairs of group `index`. Their documents differ."""
    rng = random.Random(digest("pairs", seed, index, split.held_out))
    names = list(kinds or KINDS)
    make, _ = KINDS[rng.choices(names, [KINDS[name][1] for name in names])[0]]
    return make(rng, split)


def people(rng, split):
    """Returns facts about one person, or one fact about several: of the islands, or invented."""
    relations = rng.sample(list(facts.PERSON), GROUP)
    if rng.random() < 0.5:
        person = anybody(rng, split)
        return [fact(rng, split, person, relation) for relation in relations]
    found = {}
    while len(found) < GROUP:
        person = anybody(rng, split)
        found[person.name] = person
    return [fact(rng, split, person, relations[0]) for person in found.values()]


def anybody(rng, split):
    """Returns a person of the islands, or one who is made up, with a life of their own."""
    life = rng.choice(world.PEOPLE)
    if rng.random() < 0.5:
        return split.draw(lambda: rng.choice(world.PEOPLE), "person of a pair")
    name, pronoun = split.draw(lambda: invented_name(rng), "somebody")
    some = {field: getattr(rng.choice(world.PEOPLE), field) for field in (
        "town", "job", "pet", "pet_name", "food", "hobby", "sibling", "teacher")}
    return replace(life, name=name, pronoun=pronoun, **some)


def fact(rng, split, person, relation):
    """Returns a question about a person, asked in either direction, and the answer."""
    value, slots = getattr(person, relation), facts.slots(person)
    known, of_all = ((relation, value),), tuple((name, getattr(person, name)) for name in SUMMARY)
    answer = facts.PERSON[relation][1].format(v=facts.value_of(person, relation), **slots)
    if relation in facts.BY_VALUE and rng.random() < 0.4:
        templates, other = facts.BY_VALUE[relation]
        question = split.say(rng, *templates, v=value)
        told = rng.choice([answer, facts.capital(other.format(x=person.name, v=value))])
        return Pair(question, told, (relation, value), known)
    question = split.say(rng, *facts.PERSON[relation][0], **slots)
    kind = rng.random()
    if kind < 0.15:
        return Pair(question, split.say(rng, *facts.PERSON[relation][0], **slots))
    if kind < 0.3 and relation in SUMMARY:
        return Pair(question, facts.about(person), (), of_all)
    return Pair(question, answer, (), known)


def places(rng, split):
    """Returns facts about towns."""
    found = {}
    while len(found) < GROUP:
        town = rng.choice(world.TOWNS)
        if rng.random() < 0.6:
            relation = rng.choice(list(facts.TOWN))
            templates, answer = facts.TOWN[relation]
            question = split.say(rng, *templates, x=town.name)
        else:
            relation = rng.choice(list(facts.BY_TOWN_VALUE))
            templates, answer = facts.BY_TOWN_VALUE[relation]
            question = split.say(rng, *templates, v=getattr(town, relation))
        value = getattr(town, relation)
        value = world.REGIONS[value] if relation == "region" else value
        told = facts.capital(answer.format(x=town.name, v=value))
        found[town.name, relation] = Pair(question, told)
    return list(found.values())


def story(rng, split):
    """Returns questions about stories, each with its story, or with the answer."""
    found = {}
    while len(found) < GROUP:
        plot = stories.new_plot(rng, split)
        key = rng.choice(["why", "animal", "feeling", "where", "request"])
        if key == "request":
            question = split.say(rng, *stories.REQUESTS, **plot)
            found[plot["text"]] = Pair(question, plot["text"])
            continue
        templates, answer = stories.ASK[key]
        question = split.say(rng, *templates, **plot)
        if plot["name"] not in question:
            question = f"{question[:-1]} in the story of {plot['name']}?"
        whole = rng.random() < 0.6 or key in ("animal", "where")
        told = plot["text"] if whole else answer.format(**plot)
        found[told] = Pair(question, told)
    return list(found.values())


def talking(rng, split):
    """Returns questions about Playhouse and the model, with their answers."""
    intents = rng.sample(list(talk.INTENTS), GROUP)
    found = []
    for intent in intents:
        templates, answers, _ = talk.INTENTS[intent]
        question = split.say(rng, *templates)
        told = rng.choice(answers) if rng.random() < 0.8 else split.say(rng, *templates)
        found.append(Pair(question, told))
    return found


def keywords(rng, split):
    """Returns a few words of sentences, and the sentences."""
    found = {}
    while len(found) < GROUP:
        if rng.random() < 0.5:
            count = rng.randint(4, 12)
            words = [word(rng) for _ in range(count)]
            sentence = " ".join(words).capitalize() + "."
        else:
            sentence = stories.new_plot(rng, split)["text"].split(". ")[rng.randrange(3)] + "."
        content = [word for word in re.findall(r"[A-Za-z]+", sentence) if len(word) > 3]
        chosen = rng.sample(content, min(len(content), rng.randint(1, 3)))
        if chosen:
            found[sentence] = Pair(" ".join(chosen).lower(), sentence)
    return list(found.values())


def word(rng):
    """Returns a common word, or an invented one."""
    return rng.choice(COMMON) if rng.random() < 0.6 else syllables(rng, rng.randint(1, 2))


KINDS = {
    "people": (people, 9),
    "towns": (places, 3),
    "stories": (story, 3),
    "talk": (talking, 2),
    "keywords": (keywords, 3),
}
"""Each kind of groups, and its share."""
