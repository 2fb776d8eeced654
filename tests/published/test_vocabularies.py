"""Vocabularies of real models in GGUF, with the tokens that Hugging Face's tokenizers make."""

import json
import unittest

from packages import ROOT, llama_cpp, served

SEPARATOR = "\n__ggml_vocab_test__\n"
# A model that takes every vocabulary, and computes little.
TINY = {
    "num_hidden_layers": 1,
    "vocab_size": 300_000,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
# llama.cpp's own tokens, where accents stand alone. The model's tokenizer joins them to letters
# first, and so does Playhouse.
NOT_JOINED = {"ggml-vocab-qwen35.gguf": "\u0300\u0301"}


class Vocabularies(unittest.TestCase):
    def test_tokens_are_those_of_the_models_tokenizers(self):
        vocabularies = sorted(llama_cpp().glob("ggml-vocab-*.gguf.inp"))
        self.assertGreaterEqual(len(vocabularies), 15)
        for texts in vocabularies:
            with self.subTest(texts.stem):
                self.check(texts)

    def check(self, texts):
        # Line ends are part of the texts.
        cases = texts.read_bytes().decode().split(SEPARATOR)
        tokens = texts.with_suffix(".out").read_text().split("\n")
        joined = NOT_JOINED.get(texts.stem, "")
        with served(
            "--model", str(ROOT / "benches/shapes/qwen3-0.6b"), "--load-format", "dummy",
            "--hf-overrides", json.dumps(TINY), "--max-model-len", "512",
            "--kv-cache-memory-bytes", "64MiB", "--tokenizer", str(texts.with_suffix("")),
        ) as server:  # fmt: skip
            for text, expected in zip(cases, tokens):
                if any(accent in text for accent in joined):
                    continue
                body = {"prompt": text, "add_special_tokens": False}
                answer = server.post("/tokenize", body)
                expected = [int(token) for token in expected.split()]
                self.assertEqual(answer["tokens"], expected, repr(text))


if __name__ == "__main__":
    unittest.main()
