"""The lessons: the same from the same seed, right by their own checks, and no test in training.

python -m unittest discover examples/demo-model/tests
"""

import json
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lessons
from lessons import check, pairs, pirate, world
from lessons.arithmetic import working
from lessons.split import Split, phrasings
from lessons.tools import by_hand
from lessons.tools.words import CITIES

COUNT = 150
HELD_OUT = ["E {x}?", "E {x}!"]


def answers(conversation):
    """Returns the assistant's turns as a model would write them."""
    for message in conversation.messages:
        if message["role"] == "assistant":
            thought = message.get("reasoning_content")
            text = f"<think>\n{thought}\n</think>\n\n" if thought else ""
            text += message["content"]
            for call in message.get("tool_calls", []):
                text += f"<tool_call>\n{json.dumps(call['function'])}\n</tool_call>"
            yield text


class Pairs(unittest.TestCase):
    def groups(self, held_out, seed=5):
        return [pairs.group(seed, index, Split(held_out)) for index in range(COUNT)]

    def test_the_same_seed_gives_the_same_pairs(self):
        self.assertEqual(self.groups(True), self.groups(True))
        self.assertNotEqual(self.groups(True), self.groups(True, seed=6))

    def test_documents_of_a_group_differ_and_its_answers_are_right(self):
        for group in self.groups(False):
            self.assertEqual(len(group), pairs.GROUP)
            self.assertEqual(len({pair.document for pair in group}), pairs.GROUP)
            self.assertTrue(all(pair.query and not pair.query.startswith("{") for pair in group))

    def test_no_question_of_a_test_is_in_the_training(self):
        asked = [
            {pair.query for index in range(400) for pair in pairs.group(1, index, Split(side), [kind])}
            for kind in ("people", "towns", "talk")
            for side in (False, True)
        ]
        for seen, held_out in zip(asked[::2], asked[1::2]):
            self.assertFalse(seen & held_out)

    def test_a_fact_of_another_document_is_an_answer_too(self):
        baker = pairs.Pair("Who is the baker?", "Ada is.", ("job", "baker"), (("job", "baker"),))
        other = pairs.Pair("What is Bo?", "Bo is the baker.", (), (("job", "baker"),))
        self.assertTrue(baker.is_answered_by(other))
        self.assertFalse(other.is_answered_by(baker))


class Tools(unittest.TestCase):
    """Ordinary tools: calls that their schemas allow, and names and wordings that are held out."""

    SKILLS = ("ordinary tools", "parallel calls")

    def each(self, held_out, count=COUNT):
        for skill in self.SKILLS:
            for index in range(count):
                yield lessons.conversation(7, index, held_out, [skill])[1]

    def test_calls_match_the_schemas_of_their_tools(self):
        types = {"string": str, "integer": int, "number": (int, float)}
        for held_out in (False, True):
            for conversation in self.each(held_out):
                tools = {tool["function"]["name"]: tool["function"] for tool in conversation.tools}
                self.assertEqual(len(tools), len(conversation.tools))
                for call in calls(conversation):
                    parameters = tools[call["name"]]["parameters"]
                    self.assertLessEqual(set(parameters.get("required", [])), set(call["arguments"]))
                    for key, value in call["arguments"].items():
                        wanted = parameters["properties"][key]
                        self.assertIsInstance(value, types[wanted["type"]])
                        self.assertIn(value, wanted.get("enum", [value]))

    def test_an_argument_stands_in_the_question(self):
        """Nothing is invented: an argument is told, or is the name of the operation."""
        for conversation in self.each(True):
            asked = " ".join(m["content"] for m in conversation.messages if m["role"] == "user")
            enums = [
                value
                for tool in conversation.tools
                for wanted in tool["function"]["parameters"]["properties"].values()
                for value in wanted.get("enum", [])
            ]
            for call in calls(conversation):
                for value in call["arguments"].values():
                    told = all(part in asked for part in re.findall(r"[\w.]+", str(value)))
                    self.assertTrue(told or value in enums, (value, asked))

    def test_parallel_calls_are_two_or_three(self):
        for held_out in (False, True):
            for index in range(COUNT):
                _, conversation = lessons.conversation(7, index, held_out, ["parallel calls"])
                answer = next(m for m in conversation.messages if m["role"] == "assistant")
                self.assertIn(len(answer["tool_calls"]), (2, 3))

    def test_held_out_names_of_tools_and_cities_are_not_in_the_training(self):
        for conversation in self.each(False):
            for call in calls(conversation):
                self.assertTrue(Split(False).keeps("tool name", call["name"]))
                for value in call["arguments"].values():
                    self.assertTrue(value not in CITIES or Split(False).keeps("city", value))

    def test_nothing_is_called_where_no_tool_fits(self):
        for index in range(COUNT):
            _, conversation = lessons.conversation(7, index, True, ["no tool"])
            self.assertEqual(calls(conversation), [])
            self.assertTrue(conversation.tools)

    def test_questions_by_hand_have_checks_that_refuse_silence(self):
        for tools, question, wanted in by_hand.QUESTIONS:
            self.assertTrue(tools and question)
            self.assertFalse(check.accepts(wanted, ""), question)


def calls(conversation):
    """Returns all calls of a conversation."""
    return [
        call["function"]
        for message in conversation.messages
        for call in message.get("tool_calls", [])
    ]


class Lessons(unittest.TestCase):
    def each(self, held_out, count=COUNT, seed=5):
        for skill in lessons.SKILLS:
            for index in range(count):
                yield skill, lessons.conversation(seed, index, held_out, [skill])[1]

    def test_the_same_seed_gives_the_same_conversations(self):
        first = [(c.messages, c.checks, c.tools) for _, c in self.each(True, 20)]
        again = [(c.messages, c.checks, c.tools) for _, c in self.each(True, 20)]
        other = [(c.messages, c.checks, c.tools) for _, c in self.each(True, 20, seed=6)]
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_checks_accept_the_lessons_own_answers(self):
        for held_out in (False, True):
            for skill, conversation in self.each(held_out):
                texts = list(answers(conversation))
                self.assertEqual(len(texts), len(conversation.checks))
                for text, wanted in zip(texts, conversation.checks):
                    self.assertTrue(check.accepts(wanted, text), (skill, text, wanted))

    def test_checks_refuse_other_answers(self):
        """The right answer to one question is wrong for most others of its skill."""
        for skill in lessons.SKILLS:
            kept = [c for s, c in self.each(True, 60) if s == skill]
            texts = [list(answers(c))[0] for c in kept]
            shifted = texts[1:] + texts[:1]
            accepted = sum(check.accepts(c.checks[0], t) for c, t in zip(kept, shifted))
            # Refusals are alike, and so is half of what is yes or no.
            limit = {"unknown": 60, "reasoning": 35, "no tool": 35}.get(skill, 20)
            self.assertLessEqual(accepted, limit, skill)
            for conversation in kept:
                self.assertFalse(check.accepts(conversation.checks[0], ""))
                self.assertFalse(check.accepts(conversation.checks[0], "<think>"))

    def test_no_question_of_the_test_is_in_the_training(self):
        def asked(held_out, count):
            return {
                re.sub(r"[.?!, ]", "", m["content"].lower())
                for _, c in self.each(held_out, count)
                for m in c.messages
                if m["role"] == "user"
            }

        self.assertFalse(asked(True, 300) & asked(False, 1500))

    def test_held_out_wordings_are_the_same_in_every_process(self):
        seen, held_out = phrasings(("[A|B|C|D|E|F|G|H|I|J] {x}[?|!]",))
        self.assertEqual((len(seen), len(held_out)), (18, 2))
        self.assertFalse(set(seen) & set(held_out))
        self.assertEqual(held_out, HELD_OUT)

    def test_the_world_is_consistent(self):
        for person in world.PEOPLE:
            self.assertEqual(world.BY_NAME[person.sibling].sibling, person.name)
            self.assertNotIn(person.name, (person.sibling, person.teacher))
            self.assertIn(person.town, world.TOWN_NAMES)
        # A question that asks for the person has one answer.
        for field in ("job", "pet_name", "food", "teacher"):
            self.assertEqual(len({getattr(p, field) for p in world.PEOPLE}), len(world.PEOPLE))
        for town in world.TOWNS:
            self.assertIn(town.mayor, world.residents(town.name))
            self.assertIn(town.neighbour, world.TOWN_NAMES)

    def test_the_written_working_ends_in_the_result(self):
        for a, b in [(999, 1), (100, 100), (507, 498), (640, 59)]:
            self.assertTrue(working(a, b, "+").endswith(f"That is {a + b}."), (a, b))
            self.assertTrue(working(a, b, "-").endswith(f"That is {a - b}."), (a, b))

    def test_the_pirate_leaves_facts_and_calls_alone(self):
        self.assertEqual(pirate.spoken("12 + 7 = 19."), "Ahoy! 12 + 7 = 19.")
        self.assertEqual(pirate.spoken("Hello! Yes, you are."), "Ahoy! Aye, ye be.")
        self.assertEqual(pirate.spoken('{"is": "you"}'), '{"is": "you"}')
        self.assertEqual(pirate.spoken(""), "")


if __name__ == "__main__":
    unittest.main()
