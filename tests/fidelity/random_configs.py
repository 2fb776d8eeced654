"""Compares models of random configs with Hugging Face transformers.

    cargo build
    python tests/fidelity/random_configs.py target/debug/playhouse             # 3 of each family
    python tests/fidelity/random_configs.py target/debug/playhouse --seed 5 --count 10 gemma mixtral
    python tests/fidelity/random_configs.py target/debug/playhouse --absent    # defaults of classes

Each model begins as one of `make_models.py`. Then random fields of its config change: booleans,
numbers, activations, heads, experts, windows, rope. With `--absent`, fields are left out or null
instead, so that the defaults of transformers' classes count. A server loads the model in float32,
and its log-probabilities are compared with those of transformers. Results, one line a model:

- `ok`: all log-probabilities agree.
- `refused`: the server names a field that it does not support. The line shows the error.
- `skipped`: transformers rejects the config.
- `noise`: float32 and float64 differ by nearly as much in transformers itself.
- `WRONG`: log-probabilities differ, so a field is ignored or misread. The folder is kept.
- `BROKEN`: the server failed in another way.

The exit code is 1 if a model is wrong or broken, or if more of a family's models are refused than
`--most-refused`, a share of those that transformers runs. Models with longrope are left out:
transformers chooses its factors by the text's length, and Playhouse by the context's, as vLLM does.

Needs what `make_models.py` needs. Nothing is downloaded.
"""

import argparse
import copy
import json
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
import transformers

import absent_fields
import make_models
from corpus import sentences, train_tokenizer

TOLERANCE = 2e-4
GENERATED_TOKENS = 6
START_SECONDS = 30

# Fields that change no result, or that transformers itself does not read.
IGNORED = {
    "add_cross_attention", "is_decoder", "is_encoder_decoder", "output_attentions",
    "output_hidden_states", "output_router_logits", "pretraining_tp", "return_dict",
    # With it, a model is an encoder.
    "use_bidirectional_attention",
    "rescale_prenorm_residual", "slow_but_exact", "tie_word_embeddings", "use_cache", "use_mamba_kernels",
    "architectures", "bos_token_id", "dtype", "eos_token_id", "id2label", "label2id",
    "model_type", "pad_token_id", "transformers_version", "vocab_size",
}
# Fields that transformers reads from no file of a type's models.
IGNORED_BY = {"phimoe": ["num_experts_per_tok"], "recurrent_gemma": ["head_dim"]}
# Parts of the names of numbers that matter to training alone.
FOR_TRAINING = ["drop", "init", "aux", "loss", "jitter", "coef", "rope_theta"]
ACTIVATIONS = ["gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2", "silu"]
# Sizes, and the values that they may get.
SIZES = {
    "head_dim": [4, 8, 16, 24],
    "intermediate_size": [24, 40, 64],
    "num_hidden_layers": [1, 3, 5],
    "num_key_value_heads": [1, 2, 4],
    "sliding_window": [2, 5, 16, 33],
    "num_experts": [4, 6, 8],
    "num_local_experts": [4, 6, 8],
    "n_routed_experts": [4, 6, 8],
    "num_experts_per_tok": [1, 2, 3],
    "moe_k": [1, 2, 3],
    "moe_topk": [1, 2, 3],
    "top_k_experts": [1, 2, 3],
    "zero_expert_num": [0, 1, 4],
    "num_layers": [1, 2],
    "num_kv_shared_layers": [0, 1],
    "hidden_size_per_layer_input": [0, 4, 10],
}


def random_rope(old, rng):
    """Returns other rope parameters, or the same ones if they are not those of all layers."""
    # Phi-3.5-MoE has factors of its own beside each scaling.
    if "rope_type" not in old or "short_mscale" in old:
        return old
    new = dict(rope_type=rng.choice(["default", "linear", "yarn", "llama3"]))
    new["rope_theta"] = rng.choice([500.0, 10_000.0, 1e6])
    if "partial_rotary_factor" in old:
        new["partial_rotary_factor"] = rng.choice([old["partial_rotary_factor"], 0.5, 1.0])
    if new["rope_type"] == "linear":
        new["factor"] = 4.0
    if new["rope_type"] == "yarn":
        new |= dict(factor=4.0, original_max_position_embeddings=64)
    if new["rope_type"] == "llama3":
        new |= dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=32)
    return new


def random_changes(config, rng):
    """Returns random values for some fields of a config."""
    changes = {}
    for name, value in config.items():
        if name in IGNORED or any(part in name for part in FOR_TRAINING) or rng.random() > 0.3:
            continue
        if name in IGNORED_BY.get(config.get("model_type"), ()):
            continue
        if isinstance(value, bool):
            changes[name] = not value
        elif isinstance(value, float):
            changes[name] = value * rng.choice([0.5, 0.7, 1.5, 2.0])
        elif isinstance(value, str) and value in ACTIVATIONS:
            changes[name] = rng.choice(ACTIVATIONS)
        elif isinstance(value, int) and name in SIZES:
            changes[name] = rng.choice(SIZES[name])
    if isinstance(config.get("tie_word_embeddings"), bool) and rng.random() < 0.4:
        changes["tie_word_embeddings"] = not config["tie_word_embeddings"]
    if isinstance(config.get("rope_parameters"), dict) and rng.random() < 0.5:
        changes["rope_parameters"] = random_rope(config["rope_parameters"], rng)
    return changes


def load(folder, dtype):
    # Falcon's eager attention adds ALiBi a second time, with the mask, in transformers 5.24.
    is_falcon = json.loads((folder / "config.json").read_text())["model_type"] == "falcon"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa" if is_falcon else "eager",
        experts_implementation="eager",
    )
    return model.eval()


def make(start, changes, tokenizer, folder, rng):
    """Writes a model of the config `start` with `changes` into `folder`."""
    fields = {name: value for name, value in start.to_dict().items()
              if name not in ("architectures", "dtype", "model_type", "transformers_version")}
    if "num_hidden_layers" in changes or "sliding_window" in changes:
        fields.pop("layer_types", None)
        if fields.pop("per_layer_config", None):
            # Gemma 4 makes it again, from the heads of layers of full attention.
            fields |= dict(
                global_head_dim=rng.choice([4, 8, 16, 20]),
                num_global_key_value_heads=rng.choice([None, 1, 2, 4]),
            )
    config = type(start)(**fields | changes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    make_models.randomize(model, rng.randrange(1_000))
    make_models.save(model.float(), tokenizer, dict(dtype="float32"), folder)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    # The earlier form leaves the kinds of layers out, which other fields must then imply.
    kinds = set(written.get("layer_types") or []) - {"full_attention", "sliding_attention"}
    has_theta = "rope_theta" in (written.get("rope_parameters") or {})
    if rng.random() < 0.3 and has_theta and not kinds:
        path.write_text(json.dumps(make_models.transformers_4_form(written)))


class Refused(Exception):
    """The server did not start, with this output."""


class Server:
    """A server of the model in `folder`, until the end of a `with`."""

    def __init__(self, program, folder, options=()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.output = open(folder / "server.log", "w+")
        self.process = subprocess.Popen(
            [program, "serve", folder, "--port", str(self.port), "--dtype", "float32",
             "--served-model-name", "m", "--kv-cache-memory-bytes", "256MiB", "--log-level", "warn",
             *options],
            stdout=self.output, stderr=self.output,
        )

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.output.seek(0)
                raise Refused(self.output.read())
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1)
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.__exit__()
        raise TimeoutError("the server is not healthy")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)
        self.output.close()

    def complete(self, prompt):
        """Returns the log-probabilities of the prompt's tokens, and the tokens that follow."""
        body = dict(model="m", prompt=prompt, max_tokens=GENERATED_TOKENS, temperature=0,
                    ignore_eos=True, logprobs=1, prompt_logprobs=1, return_token_ids=True)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        choice = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]
        of_prompt = [row[str(token)]["logprob"]
                     for token, row in zip(prompt[1:], choice["prompt_logprobs"][1:])]
        return of_prompt, choice["token_ids"], choice["logprobs"]["token_logprobs"]


def largest_gap(server, model, prompts):
    """Returns the largest difference of a log-probability, over prompts and generated tokens."""
    gap = 0.0
    for prompt in prompts:
        of_prompt, tokens, of_tokens = server.complete(prompt)
        text = prompt + tokens
        rows = make_models.log_probs(model, text)
        expected = [float(row[token]) for row, token in zip(rows, text[1:])]
        got = of_prompt + of_tokens
        # A generated token must be the best one, up to near ties.
        best = [float(row.max()) for row in rows[len(prompt) - 1 : -1]]
        expected[len(prompt) - 1 :] = best
        gap = max([gap, *(abs(a - b) for a, b in zip(expected, got, strict=True))])
    return gap


def check(program, start, tokenizer, prompts, folder, rng, is_absent=False):
    """Returns the result for one random model, its changes, and a remark."""
    choose, write = (absent_fields.absences, absent_fields.make) if is_absent else (
        lambda start, rng: random_changes(start.to_dict(), rng), make)
    changes = choose(start, rng)
    try:
        write(start, changes, tokenizer, folder, rng)
        model = load(folder, torch.float32)
        rows = [make_models.log_probs(model, prompt) for prompt in prompts]
    except Exception as error:  # Whatever transformers raises for settings that do not fit.
        return "skipped", changes, f"{type(error).__name__}: {str(error)[:100]}"
    try:
        # The default may be a context that the KV cache does not hold.
        is_long = "max_position_embeddings" in changes.get("absent", ())
        with Server(program, folder, ["--max-model-len", "128"] if is_long else []) as server:
            gap = largest_gap(server, model, prompts)
    except Refused as error:
        text = str(error)
        is_named = re.search(r"config\.json: `[\w.]+`", text) and "panicked" not in text
        # Warnings come before the error.
        text = text[max(text.find("error:"), 0) :].strip()
        return ("refused" if is_named else "BROKEN"), changes, text[:300]
    except (OSError, KeyError, TimeoutError) as error:
        return "BROKEN", changes, repr(error)[:300]
    if gap < TOLERANCE:
        return "ok", changes, f"{gap:.1e}"
    double = load(folder, torch.float64)
    noise = max(float((make_models.log_probs(double, prompt).float() - row).abs().max())
                for prompt, row in zip(prompts, rows))
    remark = f"gap {gap:.1e}, float32 and float64 {noise:.1e}"
    return ("noise" if gap < 20 * noise + TOLERANCE else "WRONG"), changes, remark


def families(words):
    """Returns the configs of `make_models.py` by class, those whose names contain one of `words`."""
    found = {}
    for spec in make_models.MODELS.values():
        name = type(spec["config"]).__name__
        rope = getattr(spec["config"], "rope_parameters", None) or {}
        # The text models of multimodal classes change as families of their own.
        if spec.get("is_multimodal") or "rewrite" in spec or rope.get("rope_type") == "longrope":
            continue
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        config = copy.deepcopy(spec["config"])
        # All are asked with the tokens of one tokenizer.
        config.vocab_size = max(config.vocab_size, make_models.VOCAB_SIZE)
        found.setdefault(name, []).append(config)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the playhouse program")
    parser.add_argument("family", nargs="*", help="parts of the names of config classes")
    parser.add_argument("--count", type=int, default=3, help="models of each class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--absent", action="store_true", help="leave fields out, or null")
    parser.add_argument("--most-refused", type=float, default=0.5, metavar="SHARE")
    args = parser.parse_intermixed_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = train_tokenizer(make_models.VOCAB_SIZE)
    ids = tokenizer("\n".join(sentences(seed=7, count=40)))["input_ids"]
    prompts = [ids[:1], ids[3:12], ids[:60]]
    counts, shares = {}, {}
    work = Path(tempfile.mkdtemp(prefix="random-configs-"))
    for name, starts in families(args.family).items():
        for index in range(args.count):
            rng = random.Random(f"{args.seed}-{name}-{index}")
            folder = work / f"{name}-{index}"
            folder.mkdir()
            start = starts[index % len(starts)]
            result, changes, remark = check(
                args.program, start, tokenizer, prompts, folder, rng, args.absent
            )
            counts[result] = counts.get(result, 0) + 1
            shares.setdefault(name, []).extend([] if result == "skipped" else [result == "refused"])
            shown = "" if result == "ok" else f" {remark} {changes}"
            print(f"{result:8}{name} {index}{shown}", flush=True)
            if result not in ("WRONG", "BROKEN"):
                shutil.rmtree(folder)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    shares = {name: sum(refused) / len(refused) for name, refused in shares.items() if any(refused)}
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"refused of {name}: {share:.0%}")
    if counts.keys() & {"WRONG", "BROKEN"}:
        raise SystemExit(f"see {work}")
    if any(share > args.most_refused for share in shares.values()):
        raise SystemExit(f"more than {args.most_refused:.0%} of a family's models are refused")


if __name__ == "__main__":
    main()
