"""Makes vision-language models of random configs, which a test compares with transformers.

    python tests/fidelity/random_vision.py /tmp/random-vision --seed 3 --count 4 [qwen gemma3]
    PLAYHOUSE_TEST_VISION=/tmp/random-vision/vision \\
        cargo test --workspace --test fidelity -- --ignored --nocapture random_vision

Each model begins as one of `make_vision.py`. Then random fields of its text model, its tower and its
image processor change. Those that transformers does not run are left out. `changes.json` in the
folder of a model shows its changes. Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import argparse
import json
import random
import shutil
from pathlib import Path

import torch
import transformers

import make_vision
import random_configs

random_configs.SIZES |= {"num_attention_heads": [2, 4], "num_heads": [1, 2, 4]}
# Each is a field of training, of another head, or fixed by a field beside it. The output layer of
# LLaVA-NeXT in transformers does not know Granite's `logits_scaling`.
random_configs.IGNORED |= {
    "logits_scaling",
    "vision_use_head", "return_dict_in_generate", "tie_word_embeddings", "use_cache", "projector_bias",
    "multimodal_projector_bias", "use_absolute_position_embeddings", "use_mask_token", "use_mean_pooling",
}


def changed(config, rng):
    """Changes random fields of a part of a config. Returns the changes."""
    changes = random_configs.random_changes(config.to_dict(), rng)
    if "mrope_section" in str(changes.get("rope_parameters")) or "mrope_section" in str(
        getattr(config, "rope_parameters", None)
    ):
        changes.pop("rope_parameters", None)
    for name, value in changes.items():
        setattr(config, name, value)
    if "num_hidden_layers" in changes and getattr(config, "layer_types", None):
        kinds, layers = config.layer_types, changes["num_hidden_layers"]
        config.layer_types = (kinds * layers)[:layers]
    return changes


def of_processor(processor, rng):
    """Changes random fields of an image processor's config. Returns the changes."""
    changes = {}
    for name in ("image_mean", "image_std"):
        if name in processor and rng.random() < 0.5:
            changes[name] = [rng.choice([0.3, 0.45, 0.5, 0.6]) for _ in range(3)]
    if "resample" in processor and rng.random() < 0.5:
        changes["resample"] = rng.choice([2, 3])
    if rng.random() < 0.2:
        changes["do_normalize"] = False
    if rng.random() < 0.2:
        changes["rescale_factor"] = 1 / 127.5
    if processor["image_processor_type"] in ("CLIPImageProcessor", "LlavaImageProcessor"):
        exact, bounded = dict(height=42, width=42), dict(shortest_edge=42, longest_edge=60)
        changes["size"] = rng.choice([42, exact, bounded, dict(shortest_edge=50)])
    processor.update(changes)
    return changes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("family", nargs="*", help="parts of the names of models")
    parser.add_argument("--count", type=int, default=2, help="models of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    make_vision.HERE = args.out
    (args.out / "vision").mkdir(parents=True, exist_ok=True)
    for kind, make in make_vision.models().items():
        if args.family and not any(word in kind for word in args.family):
            continue
        for index in range(args.count):
            rng, name = random.Random(f"{args.seed}-{kind}-{index}"), f"{kind}.{index}"
            folder, changes = args.out / "vision" / name, {}
            try:
                config, processor = make()
                changes["text"] = changed(config.get_text_config(), rng)
                changes["vision"] = changed(config.vision_config, rng)
                changes["processor"] = of_processor(processor, rng)
                make_vision.build(name, type(config)(**config.to_dict()), processor)
            except Exception as error:  # Whatever transformers raises for settings that do not fit.
                print(f"skipped {name}: {type(error).__name__}: {str(error)[:100]} {changes}", flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                continue
            (folder / "changes.json").write_text(json.dumps(changes))
            print(f"made {name}", flush=True)


if __name__ == "__main__":
    main()
