"""The Lantern Islands: six towns and thirty-six people, invented and consistent."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Town:
    name: str
    region: str
    landmark: str
    festival: str
    """The month of its festival."""
    colour: str
    """The colour of its flag."""
    neighbour: str
    mayor: str


@dataclass(frozen=True)
class Person:
    name: str
    pronoun: str
    town: str
    job: str
    pet: str
    pet_name: str
    food: str
    hobby: str
    sibling: str
    teacher: str

    @property
    def his(self):
        return "her" if self.pronoun == "she" else "his"

    @property
    def sibling_word(self):
        """Returns the word for the sibling of this person."""
        return "sister" if BY_NAME[self.sibling].pronoun == "she" else "brother"


WOMEN = (
    "Ada Berta Clara Dora Elin Freya Greta Hilda Ines Joan Kira Lotte Mira "
    "Nora Olga Petra Rosa Vera"
).split()
MEN = (
    "Adam Boris Casper Dario Emil Felix Gustav Hugo Ivan Jonas Karl Leo Milo "
    "Nils Otto Pavel Rufus Victor"
).split()
JOBS = (
    "baker|carpenter|doctor|farmer|fisher|gardener|teacher|tailor|painter|sailor|miller|postman|"
    "librarian|cook|nurse|potter|shepherd|smith|actor|dancer|singer|poet|pilot|judge|barber|"
    "beekeeper|clockmaker|ferryman|florist|glazier|locksmith|mason|printer|"
    "shoemaker|weaver|astronomer"
).split("|")
PETS = "cat dog parrot rabbit goat tortoise".split()
PET_NAMES = (
    "Acorn Biscuit Cinder Dusty Ember Fidget Ginger Hopper Inky Jumble Kipper Lucky Muffin Nibbles "
    "Oscar Pepper Quill Rusty Scout Tango Umber Velvet Waffle Ziggy Button "
    "Clover Domino Echo Freckle "
    "Gizmo Hazel Jasper Maple Noodle Pickle Sprout"
).split()
FOODS = (
    "plums|bread|cheese|honey|soup|pancakes|pears|fish|walnuts|carrots|cake|"
    "noodles|rice|olives|beans|"
    "mushrooms|lemons|pumpkin|apples|cherries|eggs|dumplings|porridge|"
    "tomatoes|grapes|potatoes|spinach|"
    "pie|jam|melons|butter|radishes|toast|figs|oats|peaches"
).split("|")
HOBBIES = (
    "chess|swimming|knitting|drawing|sailing|climbing|fishing|juggling|"
    "singing|dancing|reading|running"
).split("|")

_TOWNS = [
    ("Amberby", "coast", "lighthouse", "May", "yellow", "Larkhaven"),
    ("Larkhaven", "harbour", "theatre", "June", "blue", "Saltmere"),
    ("Mossbridge", "forest", "stone bridge", "October", "green", "Oldmill"),
    ("Oldmill", "plain", "windmill", "August", "white", "Amberby"),
    ("Pinewater", "mountains", "waterfall", "January", "red", "Mossbridge"),
    ("Saltmere", "marsh", "salt tower", "March", "purple", "Pinewater"),
]
REGIONS = {
    "coast": "on the coast",
    "harbour": "by the harbour",
    "forest": "in the forest",
    "plain": "on the plain",
    "mountains": "in the mountains",
    "marsh": "in the marsh",
}


def _people():
    names = [name for pair in zip(WOMEN, MEN) for name in pair]
    count = len(names)
    for i, name in enumerate(names):
        # A multiplier without a common factor with 36 makes every list a permutation.
        sibling = i + 2 if i % 4 < 2 else i - 2
        if i % 8 >= 4:
            sibling = i ^ 1
        yield Person(
            name=name,
            pronoun="she" if i % 2 == 0 else "he",
            town=_TOWNS[(i * 5 + i // 6) % 6][0],
            job=JOBS[(i * 7 + 3) % count],
            pet=PETS[(i * 11 + i // 6) % 6],
            pet_name=PET_NAMES[(i * 13 + 5) % count],
            food=FOODS[(i * 17 + 1) % count],
            hobby=HOBBIES[(i * 5 + 2) % 12],
            sibling=names[sibling],
            teacher=names[(i * 19 + 7) % count],
        )


PEOPLE = list(_people())
BY_NAME = {person.name: person for person in PEOPLE}
NAMES = list(BY_NAME)


def residents(town):
    """Returns the names of the inhabitants of `town`, in alphabetical order."""
    return sorted(person.name for person in PEOPLE if person.town == town)


TOWNS = [
    Town(*row, mayor=residents(row[0])[i % len(residents(row[0]))]) for i, row in enumerate(_TOWNS)
]
TOWN_NAMES = [town.name for town in TOWNS]
BY_TOWN = {town.name: town for town in TOWNS}
