"""The trainer: tokens, masks, the model compared with transformers, and a training that resumes exactly.

python -m unittest discover examples/demo-model/tests
"""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

try:
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
except ImportError as error:
    raise unittest.SkipTest("needs torch and safetensors") from error

import lessons
from trainer import export, lora, parallel, text
from trainer import tokenizer as tokenizers
from trainer.batches import Batches, document, hides_its_thought
from trainer.constrained import Constraint, Grammar
from trainer.generate import Sampling, greedy, likeliest, written
from trainer.loop import Plan, Training, rate
from trainer.model import Model, Shape
from trainer.optimizer import orthogonalised

VOCAB_SIZE = 1024
SHAPE = Shape(VOCAB_SIZE, 32, 48, 2, 2, 1, 16)
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None


def setUpModule():
    global TOKENIZER
    texts = ["".join(piece for piece, _ in document("test", i)) for i in range(2000)]
    TOKENIZER = tokenizers.train(texts, VOCAB_SIZE)
    torch.set_num_threads(1)


def few_steps(team, tokenizer, folder):
    """The work of one process of a training; the leader writes its checkpoint."""
    torch.set_num_threads(1)
    plan = Plan(steps=3, lr=1e-3, weight_decay=0.1, checkpoint=Path(folder) / "x.pt")
    batches = Batches(Tokenizer.from_str(tokenizer), 3, 8, 512)
    Training(random_model(), batches, plan, None, team=team).run()


def random_model(seed=0):
    """A model whose every weight matters."""
    torch.manual_seed(seed)
    model = Model(SHAPE)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2, mean=float(weight.dim() == 1))
    return model


class Tokens(unittest.TestCase):
    def tokens(self, words):
        return [token.replace("Ġ", "_") for token in TOKENIZER.encode(words).tokens]

    def test_digits_and_letters_of_quoted_words_are_tokens(self):
        self.assertEqual(self.tokens("120"), ["1", "2", "0"])
        self.assertEqual(self.tokens('"tell"'), ['"', "t", "e", "l", "l", '"'])
        self.assertEqual(self.tokens("t-e-a"), ["t", "-", "e", "-", "a"])
        self.assertEqual(self.tokens('{"name": '), ['{"', "name", '":', "_"])

    def test_any_text_comes_back(self):
        for words in ["naïve 東京 🎭 \t x²\n\n", "what's {'a': [1.5, \"b c\"]}", "  two  spaces "]:
            ids = TOKENIZER.encode(words).ids
            self.assertEqual(TOKENIZER.decode(ids, skip_special_tokens=False), words)

    def test_marks_are_single_tokens_and_the_specials_come_first(self):
        self.assertEqual(len(self.tokens("<think></think><tool_call></tool_call>")), 4)
        ids = [TOKENIZER.token_to_id(token) for token in tokenizers.SPECIAL]
        self.assertEqual(ids, [0, 1, 2])

    def test_only_what_the_assistant_says_is_learned(self):
        for index in range(300):
            _, conversation = lessons.conversation("mask", index)
            messages, tools = conversation.messages, conversation.tools
            golds = [gold + "<|im_end|>" for _, gold in text.prompts(conversation)]
            shown = text.render(messages, tools)
            hidden = list(hides_its_thought(messages))
            self.assertEqual(len(hidden), len(golds))
            parts = [part for part, is_learned in text.pieces(shown) if is_learned]
            for part, gold, is_hidden in zip(parts, golds, hidden, strict=True):
                # The model should not learn a turn whose thought the template hides.
                self.assertEqual(part != gold, is_hidden)

    def test_what_is_learned_is_what_would_be_asked_for(self):
        for index in range(300):
            _, conversation = lessons.conversation("document", index)
            golds = {gold + "<|im_end|>" for _, gold in text.prompts(conversation)}
            learned = {part for part, is_learned in document("document", index) if is_learned}
            bare = any(part.endswith("<|endoftext|>") for part in learned)
            if conversation.is_given_keys:
                # The keys are left out, and what is left are parts of the answers.
                golds = {part for part in learned if any(part in gold for gold in golds)}
            self.assertTrue(bare or learned <= golds, (learned, golds))
            self.assertTrue(learned)

    def test_a_step_depends_on_its_number_alone(self):
        batches = Batches(TOKENIZER, 3, 16, 1024)
        self.assertEqual(list(batches.step(5)), list(Batches(TOKENIZER, 3, 16, 1024).step(5)))
        self.assertNotEqual(list(batches.step(5)), list(batches.step(6)))


class TheModel(unittest.TestCase):
    @unittest.skipUnless(HAS_TRANSFORMERS, "needs transformers")
    def test_an_exported_model_is_transformers_too(self):
        with tempfile.TemporaryDirectory() as folder:
            export.save(random_model(), TOKENIZER, Path(folder))
            names = {path.name for path in Path(folder).iterdir()}
            config = json.loads((Path(folder) / "config.json").read_text())
        self.assertEqual(config["architectures"], ["Qwen3ForCausalLM"])
        wanted = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
        self.assertLessEqual(wanted | {"tokenizer_config.json", "chat_template.jinja"}, names)

    @unittest.skipUnless(HAS_TRANSFORMERS, "needs transformers")
    def test_conversations_are_rendered_as_by_transformers(self):
        from transformers import PreTrainedTokenizerFast

        fast = PreTrainedTokenizerFast(tokenizer_object=TOKENIZER)
        fast.chat_template = text.TEMPLATE
        for index in range(100):
            _, conversation = lessons.conversation("render", index)
            ours = text.render(conversation.messages, conversation.tools)
            theirs = fast.apply_chat_template(
                conversation.messages, tools=conversation.tools, tokenize=False
            )
            self.assertEqual(ours, theirs)

    def test_greedy_decoding_of_ragged_prompts_is_that_of_each_alone(self):
        model = random_model()
        prompts = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14]]
        together = greedy(model, prompts, 12)
        for prompt, written in zip(prompts, together):
            tokens = list(prompt)
            for token in written:
                logits = model.logits(model.hidden(torch.tensor([tokens]))[0, -1])
                self.assertEqual(logits.argmax().item(), token)
                tokens.append(token)

    def test_a_new_adapter_changes_nothing_and_is_saved_under_pefts_names(self):
        model, tokens = random_model(), torch.tensor([[5, 6, 7]])
        before = model.hidden(tokens)
        torch.testing.assert_close(lora.adapt(model).hidden(tokens), before)
        with tempfile.TemporaryDirectory() as folder:
            lora.save(model, Path(folder))
            tensors = load_file(Path(folder) / "adapter_model.safetensors")
        name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
        self.assertEqual(tensors[name].shape, (48, lora.RANK))
        self.assertEqual(len(tensors), SHAPE.num_hidden_layers * len(lora.TARGETS) * 2)


class Decoding(unittest.TestCase):
    def test_sampling_keeps_to_the_likeliest_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {"temperature": 1.0, "top_k": 3, "top_p": 0.6}
            (Path(folder) / "generation_config.json").write_text(json.dumps(config))
            pick = Sampling(Path(folder))
        logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]] * 400).log()
        # The second is needed for 60 %, the third is not, the fourth is not of the best three.
        self.assertEqual(set(pick(logits).tolist()), {0, 1})
        self.assertEqual(pick(torch.tensor([[0.1, 0.9]] * 9).repeat(1, 2).log()).shape, (9,))

    def test_a_grammar_is_that_of_json_with_the_same_keys_and_types(self):
        grammar = Grammar([{"a": "x", "b": 1}, {"c": 1.5, "d": True}])
        right = ['[{"a": "", "b": 0}, {"c": 20.25, "d": false}]',
                 '[{"a": "say \\"é\\"", "b": -12}, {"c": -3, "d": true}]']
        wrong = ['[{"b"', '[{"a": 1', '[{"a": "x", "b": 01', '[{"a": "x", "b": 1.',
                 '[{"a": "\n', '[{"a": "\\x', '[{"a": "x", "b": -}', '[{"a": "x", "b": 1}, {"c": 1.,',
                 right[0] + "]"]
        for text in right:
            state = grammar.after((0, 0), text.encode())
            self.assertTrue(state and grammar.is_at_end(state), text)
            for end in range(len(text)):
                state = grammar.after((0, 0), text[:end].encode())
                self.assertFalse(grammar.is_at_end(state), text[:end])
        for text in wrong:
            self.assertIsNone(grammar.after((0, 0), text.encode()), text)

    def test_what_is_written_under_a_schema_matches_it(self):
        grammars = [Grammar({"name": "x", "n": 3}), Grammar({"is": True})]
        constraint = Constraint(TOKENIZER, grammars, likeliest)
        prompts = [TOKENIZER.encode(each).ids for each in ("Who?", "Is it so?")]
        texts = written(random_model(), prompts, 40, constraint)
        for grammar, tokens in zip(grammars, texts):
            text = "".join(TOKENIZER.decode([token]) for token in tokens).encode()
            self.assertIsNotNone(grammar.after((0, 0), text), text)
        self.assertIn(TOKENIZER.decode(texts[1]), ('{"is": true}', '{"is": false}'))


class Keys(unittest.TestCase):
    def test_keys_that_a_schema_gives_are_not_learned(self):
        seen = 0
        for index in range(60):
            _, conversation = lessons.conversation("keys", index, skills=["schemas"])
            parts = document("keys", index, skills=["schemas"])
            learned = "".join(part for part, is_learned in parts if is_learned)
            whole = "".join(part for part, _ in parts)
            self.assertIn('":', whole)
            self.assertNotIn('":', learned)
            self.assertTrue(learned.endswith("<|im_end|>"))
            seen += conversation.is_given_keys
        self.assertEqual(seen, 60)


class TheTraining(unittest.TestCase):
    def train(self, folder, steps_now):
        plan = Plan(steps=6, lr=1e-2, weight_decay=0.1, checkpoint=Path(folder) / "x.pt")
        training = Training(random_model(), Batches(TOKENIZER, 3, 4, 512), plan, TOKENIZER)
        losses = [training._one_step() for _ in range(steps_now)]
        training.save()
        return losses, training.model.state_dict()

    def test_it_goes_on_exactly_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            losses, weights = self.train(one, 6)
            first, _ = self.train(two, 3)
            then, resumed = self.train(two, 3)
        self.assertEqual(losses, first + then)
        for name, weight in weights.items():
            self.assertTrue(torch.equal(weight, resumed[name]), name)

    def test_processes_share_a_step_without_changing_it(self):
        states = []
        for parts in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                parallel.run(parts, few_steps, TOKENIZER.to_str(), folder)
                states.append(torch.load(Path(folder) / "x.pt", weights_only=True))
        alone, together = states
        self.assertEqual(alone["progress"][:2], together["progress"][:2])
        for name, weight in alone["model"].items():
            torch.testing.assert_close(together["model"][name], weight, rtol=1e-3, atol=1e-4)

    def test_the_loss_falls(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = Plan(steps=1000, lr=1e-2, weight_decay=0.0, checkpoint=Path(folder) / "x.pt")
            torch.manual_seed(0)
            training = Training(Model(SHAPE), Batches(TOKENIZER, 3, 8, 512), plan, TOKENIZER)
            losses = [training._one_step() for _ in range(100)]
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_the_rate_rises_stays_and_falls(self):
        rates = [rate(step, 2000) for step in (0, 99, 1000, 1500, 1999)]
        self.assertEqual(rates, [0.01, 1.0, 1.0, 0.5, 0.001])

    def test_muons_update_is_about_orthogonal(self):
        torch.manual_seed(0)
        for shape in [(16, 48), (48, 16), (32, 32)]:
            for dtype in (torch.float32, torch.bfloat16):
                update = orthogonalised(torch.randn(shape), dtype).float()
                values = torch.linalg.svdvals(update)
                self.assertLess(values.max().item(), 1.3)
                self.assertGreater(values.median().item(), 0.6)


if __name__ == "__main__":
    unittest.main()
