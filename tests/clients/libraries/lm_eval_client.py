"""Evaluates the model with lm-eval's `local-completions` on tasks of local files, and compares
log-likelihoods, texts and scores with those that this script computes from the server's answers.

    lm_eval_client.py BASE_URL POOLING_URL KEY
"""

import json
import os
import pathlib
import sys
import tempfile

url, _, key = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
# There is no hub. The key is read from OpenAI's variable.
os.environ |= {"HF_HOME": folder.name, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": key}

import lm_eval
from lm_eval.tasks import TaskManager
from served import post

# The demo model knows sums up to twelve by heart. It was told nothing of Norway and Faust.
SUMS = [(2, 3), (7, 5), (9, 4), (12, 11), (6, 6), (1, 8)]
UNKNOWN = "I don't know that. I only know the Lantern Islands, Playhouse and a few simple skills."
QUESTIONS = [(f"What is {a} + {b}?", f"{a} + {b} = {a + b}.", f"{a} + {b} = {a + b + 3}.")
             for a, b in SUMS]
QUESTIONS += [("What is the capital of Norway?", "The capital is Oslo.", UNKNOWN),
              ("Who wrote Faust?", "Goethe wrote Faust.", UNKNOWN)]


def prompt(question):
    # lm-eval moves space at the end of a context to the choices, so it stands there at once.
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant"


def complete(text, **fields):
    body = {"model": "demo", "prompt": text, "temperature": 0, **fields}
    return post(url + "/v1/completions", body, key)["choices"][0]


def log_likelihood(context, continuation):
    """Returns the sum of the log-probabilities of the continuation's tokens, and whether each is
    the likeliest one: then greedy decoding writes them."""
    choice = complete(context + continuation, echo=True, logprobs=0, max_tokens=0)
    tokens = choice["logprobs"]
    starts = tokens["text_offset"]
    places = [place for place, start in enumerate(starts) if start >= len(context)]
    assert len(context) in starts, "a token reaches over the end of the context"
    total = sum(tokens["token_logprobs"][place] for place in places)
    greedy = complete(context, max_tokens=len(places), ignore_eos=True)["text"]
    return total, greedy == continuation


def task(name, rows, **fields):
    path = pathlib.Path(folder.name) / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"data_files": {"test": str(path)}}
    return {"task": name, "dataset_path": "json", "dataset_kwargs": files, "test_split": "test",
            "target_delimiter": "", **fields}


rows = [{"prompt": prompt(question), "choices": ["\n" + right, "\n" + wrong], "place": 0,
         "told": prompt(question) + "\n", "answer": right}
        for question, right, wrong in QUESTIONS]
chosen = task("chosen", rows, output_type="multiple_choice", doc_to_text="{{prompt}}",
              doc_to_choice="{{choices}}", doc_to_target="{{place}}",
              metric_list=[{"metric": "acc"}])
told = task("told", rows, output_type="generate_until", doc_to_text="{{told}}",
            doc_to_target="{{answer}}",
            generation_kwargs={"until": ["<|im_end|>", "\n"], "max_gen_toks": 32},
            metric_list=[{"metric": "exact_match"}])


def evaluate(**options):
    """Runs both tasks. lm-eval tokenizes by `/tokenize`, which it finds by itself."""
    there = {"model": "demo", "base_url": url + "/v1/completions", "max_retries": 1}
    there |= {"auth_token": key, "max_length": 4096, **options}
    tasks = {"tasks": [chosen, told], "task_manager": TaskManager(include_defaults=False)}
    return lm_eval.simple_evaluate("local-completions", there, **tasks, bootstrap_iters=0)


def check(evaluated):
    right = 0
    samples = sorted(evaluated["samples"]["chosen"], key=lambda sample: sample["doc_id"])
    assert len(samples) == len(rows), len(samples)
    for row, sample in zip(rows, samples, strict=True):
        expected = [log_likelihood(row["prompt"], choice) for choice in row["choices"]]
        found = sample["filtered_resps"]
        for (total, is_greedy), (theirs, also_greedy) in zip(expected, found, strict=True):
            assert abs(total - theirs) < 1e-5, (row, expected, found)
            assert is_greedy == also_greedy, (row, expected, found)
        right += expected[0][0] > expected[1][0]
    accuracy = evaluated["results"]["chosen"]["acc,none"]
    assert accuracy == right / len(rows), (accuracy, right)

    right = 0
    samples = sorted(evaluated["samples"]["told"], key=lambda sample: sample["doc_id"])
    for row, sample in zip(rows, samples, strict=True):
        text = complete(row["told"], max_tokens=32, stop=["<|im_end|>", "\n"])["text"]
        assert sample["filtered_resps"] == [text], (row, text, sample["filtered_resps"])
        right += text == row["answer"]
    matches = evaluated["results"]["told"]["exact_match,none"]
    assert matches == right / len(rows), (matches, right)
    return accuracy, matches


one_by_one = check(evaluate())
assert one_by_one == check(evaluate(num_concurrent=4, batch_size=2, tokenizer_backend="remote"))
# Most sums are right, and what it was never told is not.
assert all(4 / 8 <= score <= 6 / 8 for score in one_by_one), one_by_one
