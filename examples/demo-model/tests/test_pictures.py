"""Pictures and their questions: the same from the same seed, and no test in training.

python -m unittest discover examples/demo-model/tests
"""

import random
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken

sys.path.insert(0, str(Path(__file__).parent.parent))

from lessons.split import Split
from pictures import questions, scenes
from pictures.batches import EMBEDS, IMAGE, ROW_TOKENS, Batches, Row, batch_of
from pictures.drawing import Thing
from pictures.held_out import asked
from trainer import sight
from trainer import tokenizer as tokenizers
from trainer.looking import Again, Looking
from trainer.loop import Plan

COUNT = 60
TEMPLATE = Path(__file__).parent.parent / "trainer" / "vision_template.jinja"


def tokenizer():
    texts = (turn[1] + turn[2] for _, asks in asked("tokenizer", COUNT) for turn in asks)
    made = tokenizers.train(texts, 400)
    made.add_special_tokens([AddedToken(IMAGE, special=True, normalized=False)])
    return made


def two_circles_and_a_square():
    things = [Thing("circle", "red", 20, 20, 9), Thing("circle", "red", 60, 20, 9)]
    image = scenes.drawing.canvas(random.Random(1), (100, 80), (255, 255, 255))
    return scenes.Scene("shapes", image, [*things, Thing("square", "blue", 80, 60, 9)])


class Scenes(unittest.TestCase):
    def drawn(self, seed, held_out=False):
        return [scenes.scene(seed, index, Split(held_out)) for index in range(COUNT)]

    def test_the_same_seed_gives_the_same_pictures(self):
        pixels = [[scene.image.tobytes() for scene in self.drawn(seed)] for seed in (1, 1, 2)]
        self.assertEqual(pixels[0], pixels[1])
        self.assertFalse(set(pixels[0]) & set(pixels[2]))

    def test_contents_are_held_out(self):
        found = [
            {
                questions.description(scene)
                for scene in self.drawn(1, held_out)
                if len(scene.groups if scene.kind == "shapes" else scene.things) > 1
            }
            for held_out in (False, True)
        ]
        self.assertGreater(len(found[1]), COUNT // 3)
        self.assertFalse(found[0] & found[1])

    def test_things_are_within_the_picture_and_apart(self):
        for scene in self.drawn(3):
            width, height = scene.image.size
            self.assertTrue(all(0 < t.x < width and 0 < t.y < height for t in scene.things))
            places = {(round(t.x), round(t.y)) for t in scene.things}
            self.assertEqual(len(places), len(scene.things))


class Questions(unittest.TestCase):
    def answers(self, kind, count=200):
        scene, split = two_circles_and_a_square(), Split(False)
        made = [questions.question(scene, random.Random(i), split, kind) for i in range(count)]
        return {answer for ask in made if ask for answer in [ask[2]]}

    def test_answers_are_what_is_there(self):
        self.assertEqual(self.answers("describe"), {"Two red circles and a blue square."})
        counts = {"There are three shapes.", "There are two circles.", "There is one blue square."}
        self.assertLessEqual(counts, self.answers("count"))
        colours = {"The circles are red.", "The square is blue.", "There is no star."}
        self.assertLessEqual(colours, self.answers("colour"))
        self.assertEqual(self.answers("presence"), {"Yes.", "No."})
        self.assertEqual(self.answers("place"), {"A red circle.", "A blue square."})
        self.assertEqual(self.answers("shape"), {"A circle.", "A square."})
        self.assertEqual(self.answers("number"), {"There is no number."})
        self.assertEqual(self.answers("digits"), set())


class Rows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = tokenizer()
        cls.batches = Batches(cls.tokenizer, 1, 8)

    def row(self, turns):
        prefix = self.batches.encode("<|im_start|>user\n")
        prefix += [self.batches.image_token] * EMBEDS + self.batches.encode("\n")
        row = Row(self.batches.encode, prefix)
        for turn in turns:
            self.assertTrue(row.add([turn]))
        return row

    def test_tokens_are_those_of_the_chat_template(self):
        question, answer = "How many?", "There are two circles."
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(TEMPLATE.read_text())
        text = {"type": "text", "text": question}
        messages = [
            {"role": "user", "content": [text, {"type": "image"}]},
            {"role": "assistant", "content": answer},
        ]
        rendered = template.render(messages=messages).replace(IMAGE, IMAGE * EMBEDS)
        expected = self.batches.encode(rendered.removesuffix("\n"))
        self.assertEqual(self.row([(question, answer)]).tokens, expected)

    def test_a_conversation_sees_no_other_one_of_its_row(self):
        torch.manual_seed(1)
        config = sight.config(self.tokenizer.get_vocab_size(), self.batches.image_token)
        model = sight.Sight(config).eval()
        scene, turns = two_circles_and_a_square(), [("Who?", "No."), ("How many?", "Two.")]
        with torch.no_grad():
            both, alone = (
                model.logits(batch_of([(self.row(made), scene)])) for made in (turns, turns[1:])
            )
        row, end = self.row(turns[1:]), len(self.row(turns).tokens)
        size = len(row.tokens) - row.start
        difference = both[0, end - size : end] - alone[0, row.start : row.start + size]
        self.assertLess(difference.abs().max().item(), 1e-4)

    def test_a_step_is_full_rows_and_answers_are_learned(self):
        batch = self.batches.step(0)
        self.assertEqual(batch.tokens.shape, (8, ROW_TOKENS))
        self.assertTrue(batch.learned.any(1).all())
        learned = self.tokenizer.decode(batch.tokens[0][batch.learned[0]].tolist())
        self.assertTrue(learned.endswith("."), learned)
        parts = [self.batches.step(0, part, 2).tokens for part in (0, 1)]
        self.assertTrue(torch.equal(torch.stack(parts, 1).flatten(0, 1), batch.tokens))

    def test_hard_steps_have_more_things(self):
        hard = Batches(self.tokenizer, 1, 8, is_hard=True)
        things = [
            sum(int((made.step(i).kinds > 0).sum()) for i in range(4))
            for made in (self.batches, hard)
        ]
        self.assertGreater(things[1], things[0])

    def test_a_training_begins_again_at_its_end(self):
        config = sight.config(self.tokenizer.get_vocab_size(), self.batches.image_token)
        with tempfile.TemporaryDirectory() as folder:
            first, again = (
                Plan(2, 1e-3, 0.0, Path(folder) / name, minutes=minutes)
                for name, minutes in (("first.pt", None), ("again.pt", 0.01))
            )
            again.steps = 1_000
            given = sight.Sight(config), self.batches
            Looking(*given, first, self.tokenizer).run()
            training = Again(first.checkpoint, *given, again, self.tokenizer)
            self.assertEqual((training.step, training.seconds, training._rate()), (2, 0.0, 1.0))
            training.run()
            self.assertGreater(training.step, 2)
            self.assertLess(training._rate(), 1.0)
            # A training that was stopped goes on from its own checkpoint.
            resumed = Again(first.checkpoint, *given, again, self.tokenizer)
            self.assertEqual(resumed.step, training.step)


if __name__ == "__main__":
    unittest.main()
