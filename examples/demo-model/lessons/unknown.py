"""Questions beyond the model's world, and answers that say so."""

from . import check, facts
from .conversation import one
from .vocabulary import invented_name, invented_town

SUBJECTS = (
    "France|Japan|Brazil|Canada|Egypt|India|China|Italy|Spain|Norway|Kenya|"
    "Peru|Berlin|London|Paris|Tokyo|"
    "New York|Rome|Madrid|Moscow|Sydney|Mars|the moon|Jupiter|the sun|"
    "Einstein|Newton|Mozart|Shakespeare|"
    "Napoleon|Caesar|Picasso|football|tennis|basketball|the stock market|"
    "gold|oil|bitcoin|the president|"
    "the pope|the king of Spain|gravity|quantum physics|evolution|DNA|black "
    "holes|atoms|electricity|"
    "the internet|Python|Java|Linux|computers|phones|cars|trains|planes|"
    "rockets|dinosaurs|sharks|whales|"
    "elephants|volcanoes|earthquakes|vaccines|medicine|taxes|law|history|"
    "philosophy|poetry|opera|films|"
    "Hollywood|the Olympics|the world cup|climate change|nuclear power|the "
    "Roman Empire|the pyramids|"
    "chocolate|coffee|wine|pizza|sushi|yoga|marathons|insurance|the news|the election|the economy"
).split("|")
_SUBJECT = (
    "[|Please |Can you ][tell me about|tell me something about|explain|describe] {x}[.|?|, please]",
    "[|Tell me: |Please tell me: ][what do you know about|what is the newest about|what is new "
    "with|do you know anything about] {x}?",
    "[Who invented|Who discovered|What is the history of|What is the future "
    "of|How does one learn about] {x}?",
    "[What is|Where is|How old is|How big is|What is special about|What is "
    "the capital of|How far is] {x}?",
)
_TASKS = (
    "[|Please |Can you ][write a program|write an essay|translate this into "
    "French|draw a picture|play a song|book a flight|order a pizza|solve "
    "this equation|write a poem in Latin|fix my computer|call my mother|read "
    "my mail][| for me][.|?|, please.]",
    "[What time is it|What day is it|What is the date|What is in the news|"
    "Who won the game|What is my password|What did I eat yesterday|Where am "
    "I|How old am I|What will happen tomorrow][?| now?| please?]",
)
_ANSWERS = (
    "I don't know that. I only know the Lantern Islands, Playhouse and a few simple skills.",
    "I'm sorry, I don't know that. It is beyond my small world.",
)


def lesson(rng, split):
    kind = rng.random()
    if kind < 0.35:
        return stranger(rng, split)
    if kind < 0.5:
        town = split.draw(lambda: invented_town(rng), "no town")
        templates = facts.TOWN[rng.choice(list(facts.TOWN))][0]
        return _refuse(split.say(rng, *templates, x=town), f"I don't know a town called {town}.")
    return _refuse(question(rng, split, kind < 0.85), rng.choice(_ANSWERS))


def question(rng, split, of_subject=True):
    """Returns a question about a subject of the real world, or for a task beyond the model."""
    if not of_subject:
        return split.say(rng, *_TASKS)
    subject = split.draw(lambda: rng.choice(SUBJECTS), "subject")
    return split.say(rng, *_SUBJECT, x=subject)


def stranger(rng, split):
    """Returns a question about a person who does not live on the islands."""
    name, pronoun = split.draw(lambda: invented_name(rng), "nobody")
    relation = rng.choice([*facts.PERSON, "about"])
    templates = facts.ABOUT if relation == "about" else facts.PERSON[relation][0]
    his = "her" if pronoun == "she" else "his"
    sibling = rng.choice(["sister", "brother"])
    question = split.say(rng, *templates, x=name, his=his, sibling_word=sibling)
    return _refuse(question, f"I don't know anybody called {name}.")


def _refuse(question, answer):
    return one(question, answer, check.refuses())
