"""Vectors of a published model, as sentence-transformers 5 computes them.

`all-minilm-l6-v2.json` was made by `SentenceTransformer(FOLDER).encode(texts,
normalize_embeddings=True)`. The last text is longer than the model takes.
"""

import json
import unittest
from pathlib import Path

from packages import all_minilm, served

RECORDED = Path(__file__).with_name("all-minilm-l6-v2.json")


class Embeddings(unittest.TestCase):
    def test_vectors_are_those_of_sentence_transformers(self):
        recorded = json.loads(RECORDED.read_text())
        model = str(all_minilm())
        with served("--model", model, "--dtype", "float32") as server:
            body = {"model": model, "input": recorded["texts"], "truncate_prompt_tokens": -1}
            answer = server.post("/v1/embeddings", body)
        vectors = [entry["embedding"] for entry in answer["data"]]
        self.assertEqual(len(vectors), len(recorded["vectors"]))
        for text, vector, expected in zip(recorded["texts"], vectors, recorded["vectors"]):
            most = max(abs(a - b) for a, b in zip(vector, expected, strict=True))
            self.assertLess(most, 2e-5, text)


if __name__ == "__main__":
    unittest.main()
