"""Tools that look up one attribute of something, or do one thing to it: many nouns and verbs."""

from .schemas import Kind, Parameter
from .words import city

def _attribute_result(noun):
    def result(rng, told):
        value = rng.randint(2, 9_999)
        return {noun.replace(" ", "_"): value}, f"The {noun} of {told['of']} is {value}."

    return result


def _attribute(noun, keys):
    under = noun.replace(" ", "_")
    return Kind(
        names=(f"[get|find|look_up|read|check|fetch]_{under}", f"{under}[|_of|_lookup|_info]"),
        texts=(f"Get the {noun}", f"The {noun} of something", f"Looks up the {noun}",
               f"Returns the {noun} of it", f"Finds the {noun}"),
        parameters={"of": Parameter(keys, ("The name", "Of what", "Which one"))},
        make=lambda rng, split, source, offered: {"of": city(rng, split, source)},
        questions=(
            f"[What is|What's|Tell me|Give me|Find|Look up|I need] the {noun} of {{of}}",
            f"[Do you know|Can you find|Can you check] the {noun} of {{of}}",
        ),
        result=_attribute_result(noun),
        ends="[?|.||, please.]",
    )


_PLACES = "city place town location name area"
_PEOPLE = "person name who contact user"
_THINGS = "name item thing product of what"
_NOUNS = {
    "population": _PLACES, "mayor": _PLACES, "area": _PLACES, "altitude": _PLACES,
    "air quality": _PLACES, "sunrise": _PLACES, "humidity": _PLACES, "traffic": _PLACES,
    "distance": "to destination city place", "rent": _PLACES, "tax rate": _PLACES,
    "tide": _PLACES, "wind speed": _PLACES, "country code": _PLACES, "postcode": _PLACES,
    "phone number": _PEOPLE, "address": _PEOPLE, "birthday": _PEOPLE, "age": _PEOPLE,
    "salary": _PEOPLE, "email address": _PEOPLE, "calendar": _PEOPLE, "room": _PEOPLE,
    "price": _THINGS, "rating": _THINGS, "height": _THINGS, "weight": _THINGS,
    "length": _THINGS, "status": _THINGS, "version": _THINGS, "size": _THINGS,
    "author": _THINGS, "owner": _THINGS, "colour": _THINGS, "speed": _THINGS,
    "stock price": "company symbol name ticker", "exchange rate": "currency name code",
    "score": "team club name player", "balance": "account name id owner",
    "menu": "restaurant name place", "opening hours": "shop museum name place",
    "calories": _THINGS, "capacity": _THINGS, "deadline": _THINGS,
}
ATTRIBUTES = [_attribute(noun, tuple(keys.split())) for noun, keys in _NOUNS.items()]
"""The last few are held out as a whole."""


def _action(verb, done, things):
    """Returns tools that do `verb` to each of `things`, which are `done` then."""
    under = verb.replace(" ", "_")
    for thing in things.split():
        yield Kind(
            names=(f"{under}[|_a|_the|_this|_one]_{thing}", f"{thing}_{under}"),
            texts=(f"{verb.capitalize()} a {thing}", f"Can {verb} the {thing}",
                   f"To {verb} one {thing}", f"For the {thing}: {verb}"),
            parameters={"of": Parameter(
                (thing, "name", f"{thing}_name", "which", "target"),
                (f"The {thing}", f"Name of the {thing}", "The name", "Which one"))},
            make=lambda rng, split, source, offered: {"of": city(rng, split, source)},
            questions=(f"[|Please |Can you |Could you |Now |I want to ]{verb} [the|the|this] "
                       f"{thing} [|called |named ]{{of}}",),
            result=lambda rng, told: ({"ok": True}, f"{told['of']} is {done}."),
            ends="[?|.||!|, please.]",
        )


ACTIONS = [
    kind
    for verb, done, things in (
        ("play", "playing", "song album film"), ("open", "open", "file page app"),
        ("delete", "deleted", "file note contact"), ("turn on", "on", "lamp radio heater"),
        ("turn off", "off", "lamp radio heater"), ("call", "called", "person doctor shop"),
        ("book", "booked", "flight hotel taxi"), ("cancel", "cancelled", "flight order meeting"),
        ("buy", "bought", "ticket book plant"), ("rename", "renamed", "folder project"),
        ("print", "printed", "letter report"), ("close", "closed", "window ticket"),
    )
    for kind in _action(verb, done, things)
]
HELD_OUT = 5
"""So many of the last attributes and actions are held out."""
