#!/usr/bin/env python3
"""Makes models that answer as the demo model does, at the cost of Qwen3-0.6B, and models that count.

    benches/grow.py OUT
    benches/speculation.py --models OUT

OUT gets `demo`, `draft` (the demo model's draft, with as many tokens) and `counting`, of the shape
of Qwen3-0.6B, and `small-counting`, of the demo model's. A step then costs what it costs a large
model, and guesses are right as often as they are for the demo model. The added rows, columns, heads
and layers are zeros, so every sum stays the same. Python needs torch and safetensors.

A norm over four times as many elements, of which three quarters are zeros, gives twice the values.
So its weights are halved, and its epsilon is a quarter. Frequencies of rotations depend on the size
of a head: with four times the size, the fourth power of the base gives the same.

After token i, a model that counts says token i + 1. Its layers are zeros. With it, the share of an
answer that is in the prompt is known.
"""
import argparse, json, pathlib, shutil

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parent / "examples/demo-model"
SHAPE = HERE / "shapes/qwen3-0.6b/config.json"
LINEAR = {"self_attn.q_proj": ("q", "hidden"), "self_attn.k_proj": ("kv", "hidden"),
          "self_attn.v_proj": ("kv", "hidden"), "self_attn.o_proj": ("hidden", "q"),
          "mlp.gate_proj": ("inner", "hidden"), "mlp.up_proj": ("inner", "hidden"),
          "mlp.down_proj": ("hidden", "inner")}


def halves_apart(rows, small, large):
    """Returns rows of heads of `small` elements in heads of `large`. A head turns by halves."""
    heads = rows.unflatten(0, (-1, 2, small // 2))
    grown = heads.new_zeros(heads.shape[0], 2, large // 2, *heads.shape[3:])
    grown[:, :, : small // 2] = heads
    return grown.flatten(0, 2)


def in_front(rows, small, large):
    """Returns rows of heads of `small` elements in heads of `large`."""
    heads = rows.unflatten(0, (-1, small))
    grown = heads.new_zeros(heads.shape[0], large, *heads.shape[2:])
    grown[:, :small] = heads
    return grown.flatten(0, 1)


def padded(tensor, *shape):
    grown = tensor.new_zeros(shape)
    grown[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return grown


def grow(tensors, small, large):
    """Returns the tensors of the large model."""
    hidden, dims = large["hidden_size"], (small["head_dim"], large["head_dim"])
    sizes = {"hidden": hidden, "inner": large["intermediate_size"],
             "q": large["num_attention_heads"] * dims[1], "kv": large["num_key_value_heads"] * dims[1]}
    norm = lambda tensor, length, factor=0.5: padded(tensor, length) * factor
    made = {"model.embed_tokens.weight": padded(tensors["model.embed_tokens.weight"], large["vocab_size"], hidden),
            "model.norm.weight": norm(tensors["model.norm.weight"], hidden)}
    for layer in range(large["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        old = {name.removeprefix(f"{here}."): tensor for name, tensor in tensors.items() if name.startswith(f"{here}.")}
        for name, sides in LINEAR.items():
            rows, columns = (sizes[side] for side in sides)
            weight = old.get(f"{name}.weight", torch.zeros(1, 1, dtype=torch.bfloat16))
            if old and name.endswith(("q_proj", "k_proj")):
                weight = halves_apart(weight, *dims)
            elif old and name.endswith("v_proj"):
                weight = in_front(weight, *dims)
            elif old and name.endswith("o_proj"):
                weight = in_front(weight.T, *dims).T
            made[f"{here}.{name}.weight"] = padded(weight, rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            ones = torch.ones(hidden, dtype=torch.bfloat16)
            made[f"{here}.{name}.weight"] = norm(old[f"{name}.weight"], hidden) if old else ones
        # Scores are divided by the root of the size of a head, which is twice the old one.
        for name, factor in (("q_norm", 1.0), ("k_norm", 0.5)):
            weight = old.get(f"self_attn.{name}.weight", torch.zeros(dims[0], dtype=torch.bfloat16))
            made[f"{here}.self_attn.{name}.weight"] = halves_apart(weight, *dims) * factor
    return made


def demo(small, shape):
    """Returns the configuration and the tensors of the demo model in the large shape."""
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "head_dim")
    large = small | {name: shape[name] for name in sizes}
    if any(large[name] != 4 * small[name] for name in ("head_dim", "hidden_size")):
        raise SystemExit("norms and rotations are grown for four times the size alone")
    large["rms_norm_eps"] = small["rms_norm_eps"] / 4
    large["layer_types"] = ["full_attention"] * large["num_hidden_layers"]
    base = small["rope_parameters"]["rope_theta"] ** 4
    large["rope_parameters"] = {"rope_type": "default", "rope_theta": base}
    return large, grow(load_file(DEMO / "model.safetensors"), small, large)


def draft(shape):
    """Returns the configuration and the tensors of the draft model with the large vocabulary."""
    config = json.loads((DEMO / "draft/config.json").read_text()) | {"vocab_size": shape["vocab_size"]}
    tensors, table = load_file(DEMO / "draft/model.safetensors"), "model.embed_tokens.weight"
    tensors[table] = padded(tensors[table], config["vocab_size"], config["hidden_size"])
    return config, tensors


def counting(config, tensors, known):
    """Returns a model like this one whose next token is the next of `known` tokens."""
    made = {name: tensor if "norm" in name else tensor * 0 for name, tensor in tensors.items()}
    vectors = torch.randn(known, config["hidden_size"], generator=torch.Generator().manual_seed(1))
    table = made["model.embed_tokens.weight"]
    table[:known] = vectors.bfloat16()
    made["model.norm.weight"] = torch.ones(config["hidden_size"], dtype=torch.bfloat16)
    made["lm_head.weight"] = torch.zeros_like(table)
    made["lm_head.weight"][:known] = table[:known].roll(1, 0)
    return config | {"tie_word_embeddings": False}, made


def write(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        if (DEMO / name).exists():
            shutil.copy(DEMO / name, folder / name)
    print(f"{folder}: {sum(tensor.numel() for tensor in tensors.values()) / 1e6:.1f} M parameters")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    shape, small = (json.loads(path.read_text()) for path in (SHAPE, DEMO / "config.json"))
    large, tensors = demo(small, shape)
    write(out / "demo", large, tensors)
    write(out / "draft", *draft(shape))
    write(out / "counting", *counting(large, tensors, small["vocab_size"]))
    tensors = load_file(DEMO / "model.safetensors")
    write(out / "small-counting", *counting(small, tensors, small["vocab_size"]))


if __name__ == "__main__":
    main()
