"""Words, and names that are made up."""

from .world import NAMES, TOWN_NAMES

COMMON = (
    "apple apron arrow autumn basket beach bell berry bird boat book bottle bread brick bridge "
    "broom brush bucket button cabin candle carpet carrot castle chair cheese cherry circle cloud "
    "coat coin copper corner cotton cradle cream cup curtain daisy desk dinner door dragon dream "
    "drum duck eagle earth egg engine evening farm feather fence field finger fire fish flag "
    "flower flute forest fork frog garden gate ghost glass glove gold grape grass guitar hammer "
    "harbour hat hen hill honey horse house ice ink island ivory jacket jar jewel juice jungle "
    "kettle key king kitchen kite kitten knife ladder lake lamp lantern leaf lemon letter library "
    "lion log lunch machine map market melon milk mirror money moon morning mountain mouse mud "
    "music nail needle nest night nut oak ocean olive onion orange oven owl paint palace paper "
    "parrot path peach pearl pencil pepper piano picture pillow pine plate plum pocket pond potato "
    "pumpkin puppet queen rabbit rain ribbon ring river road robin rock roof root rope rose ruler "
    "saddle salt sand scarf sea seed shadow sheep shell ship shirt shoe silver sky snail snow soap "
    "sock song soup spider spoon spring stair star stone storm street sugar summer sun swan table "
    "tail tea tent theatre thread ticket tiger tower town toy train tree tulip tunnel turtle "
    "umbrella valley velvet village violin wagon wall walnut water wave wheat wheel whistle wind "
    "window winter wolf wood wool yarn zebra"
).split()

THINGS = (
    "apples|berries|books|bottles|boxes|buttons|candles|carrots|chairs|coins|cups|eggs|flowers|"
    "keys|lamps|lemons|letters|maps|marbles|nuts|onions|pears|pencils|plates|plums|ribbons|shells|"
    "spoons|stamps|stones|tickets|toys"
).split("|")

COLOURS = "red blue green yellow white black brown purple orange grey".split()

_ONSETS = "b br c d dr f fl g gr h j k l m n p qu r s sh st t th tr v w y z".split()
_MIDDLES = "a e i o u".split()
_CODAS = "l n r s v m d t lk nd rn".split()
_ENDS = {"she": "a ia elle ina".split(), "he": "o us en or".split()}


def syllables(rng, count):
    """Returns a pronounceable word without a meaning, in lower case."""
    word = ""
    for _ in range(count):
        word += rng.choice(_ONSETS) + rng.choice(_MIDDLES)
    return word + rng.choice(_CODAS)


def invented_name(rng, pronoun=None):
    """Returns a name that no person of the world has, and its pronoun: `("Drevina", "she")`."""
    pronoun = pronoun or rng.choice(["she", "he"])
    while True:
        name = _stem(rng) + rng.choice(_ENDS[pronoun])
        if name.capitalize() not in NAMES:
            return name.capitalize(), pronoun


def invented_town(rng):
    """Returns a town that is not in the world."""
    ends = ["ton", "ville", "field", "ford", "haven", "wick"]
    while True:
        name = _stem(rng) + rng.choice(ends)
        if name.capitalize() not in TOWN_NAMES:
            return name.capitalize()


def _stem(rng):
    return rng.choice(_ONSETS) + rng.choice(_MIDDLES) + rng.choice(_CODAS)


def article(noun):
    return "an" if noun[0] in "aeiou" else "a"


def listed(items):
    """Returns `a, b and c`."""
    items = [str(item) for item in items]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
