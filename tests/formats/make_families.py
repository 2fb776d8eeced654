"""Makes quantized checkpoints of families whose matrices are not stored as Llama's are, for
tests/formats/families.

    python tests/formats/make_families.py

Each is a tiny model with the settings of one in tests/fidelity/make_models.py. Integers, zero
points and scales are random, and packed as the formats define it. transformers computes the logits
in float32 from the weights that they stand for.

Needs: torch, transformers >= 5, numpy, safetensors. Nothing is downloaded.
"""

import copy
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE / "families"
sys.path.insert(0, str(HERE.parent / "fidelity"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from make_models import MODELS, randomize  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

VOCAB = 96
GROUP = 32
rng = np.random.default_rng(11)


def pack(fields, axis, order=range(8)):
    """Returns words of 32 bits along `axis`, eight fields each, the first in the lowest bits."""
    fields = np.moveaxis(fields.astype(np.uint32), axis, -1)
    fields = fields.reshape(*fields.shape[:-1], -1, 8)[..., list(order)]
    shifts = np.arange(8, dtype=np.uint32) * np.uint32(4)
    words = np.bitwise_or.reduce(fields << shifts, axis=-1).astype(np.uint32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis).view(np.int32))


def integers(out, inputs, symmetric=False):
    """Returns codes `[out, in]`, zero points and f16 scales `[out, groups]`."""
    codes = rng.integers(0, 16, (out, inputs))
    shape = (out, inputs // GROUP)
    zeros = np.full(shape, 8) if symmetric else rng.integers(1, 16, shape)
    return codes, zeros, (rng.uniform(0.5, 1.5, shape) * 0.03).astype(np.float16)


def weight(codes, zeros, scales, g_idx):
    return scales[:, g_idx].astype(np.float32) * (codes - zeros[:, g_idx]).astype(np.float32)


def gptq(out, inputs, act_order):
    codes, zeros, scales = integers(out, inputs)
    g_idx = np.arange(inputs, dtype=np.int32) // GROUP
    g_idx = rng.permutation(g_idx) if act_order else g_idx
    parts = dict(qweight=pack(codes.T, 0), qzeros=pack(zeros.T - 1, 1), scales=scales.T)
    parts |= dict(g_idx=g_idx)
    return parts, weight(codes, zeros, scales, g_idx)


def awq(out, inputs):
    codes, zeros, scales = integers(out, inputs)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    parts = dict(qweight=pack(codes.T, 1, order), qzeros=pack(zeros.T, 1, order), scales=scales.T)
    return parts, weight(codes, zeros, scales, np.arange(inputs) // GROUP)


def packed(out, inputs):
    """Weights of compressed-tensors' `pack-quantized`: signed codes, stored plus 8."""
    codes, zeros, scales = integers(out, inputs, symmetric=True)
    shape = np.array([out, inputs], np.int64)
    parts = dict(weight_packed=pack(codes, 1), weight_scale=scales, weight_shape=shape)
    return parts, weight(codes, zeros, scales, np.arange(inputs) // GROUP)


GPTQ = dict(quant_method="gptq", bits=4, group_size=GROUP, sym=False, desc_act=False)
AWQ = dict(quant_method="awq", bits=4, group_size=GROUP, version="gemm", zero_point=True)
SCHEME = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=GROUP)
W4A16 = dict(
    quant_method="compressed-tensors",
    format="pack-quantized",
    config_groups=dict(group_0=dict(targets=["Linear"], weights=SCHEME, input_activations=None)),
    ignore=["lm_head"],
)
NO_GATES = {"-:.*mlp\\.gate$": {}}

# Each: settings that differ from those in make_models.py, the config of the format, and the
# function that makes a matrix.
FAMILIES = {
    # Experts of their own, the order of whose inputs differs.
    "qwen3_moe": (
        dict(moe_intermediate_size=32),
        GPTQ | dict(desc_act=True, dynamic=NO_GATES),
        lambda out, inputs: gptq(out, inputs, act_order=True),
    ),
    "mixtral": (dict(), AWQ, awq),
    "glm4_moe": (dict(moe_intermediate_size=32), W4A16, packed),
    # Rows of queries, keys and values in groups of heads.
    "gpt_neox": (dict(), GPTQ, lambda out, inputs: gptq(out, inputs, act_order=False)),
    "falcon-groups": (dict(bias=False, ffn_hidden_size=64), AWQ, awq),
    # Rotary pairs of neighbours.
    "cohere": (dict(), W4A16, packed),
    "glm4": (dict(), GPTQ, lambda out, inputs: gptq(out, inputs, act_order=False)),
    # One matrix for queries, keys and values, and one for gate and up.
    "phi3": (dict(), AWQ, awq),
    # Matrices that are stored as [inputs, outputs] where they are not quantized.
    "gpt2": (
        dict(n_positions=64),
        GPTQ | dict(desc_act=True),
        lambda out, inputs: gptq(out, inputs, act_order=True),
    ),
}
# Embeddings, output layers, norms, and the matrices that choose experts are not quantized.
PLAIN = re.compile(r"embed|lm_head|wte|wpe|norm|\.gate\.weight$|ln_")


def make(name, changes, quantization, quantize):
    config = copy.deepcopy(MODELS[name]["config"])
    config.vocab_size = VOCAB
    has_width = getattr(config, "intermediate_size", None)
    if has_width and "intermediate_size" not in config.attribute_map:
        config.intermediate_size = 64
    for field, value in changes.items():
        setattr(config, field, value)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomize(model, 0)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as dense:
        dense = Path(dense)
        model.save_pretrained(dense)
        weights, stored = load_file(dense / "model.safetensors"), {}
        for key, tensor in list(weights.items()):
            if tensor.dim() != 2 or not key.endswith(".weight") or PLAIN.search(key):
                stored[key] = tensor.half()
                weights[key] = stored[key].float()
                continue
            is_transposed = config.model_type == "gpt2"
            shape = tensor.T.shape if is_transposed else tensor.shape
            parts, values = quantize(*shape)
            for part, array in parts.items():
                array = torch.from_numpy(np.ascontiguousarray(array))
                stored[f"{key.removesuffix('.weight')}.{part}"] = array
            weights[key] = torch.from_numpy(values.T.copy() if is_transposed else values)
        save_file(weights, dense / "model.safetensors", metadata={"format": "pt"})
        golden(dense, folder / "golden.json")
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        settings = json.loads((dense / "config.json").read_text())
        settings |= dict(dtype="float16", quantization_config=quantization)
        (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size / 1000:.0f} kB")


def golden(dense, path):
    """Records prompts, and transformers' logits after their last tokens."""
    model = AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32).eval()
    prompts = []
    for length in (1, 9, 40):
        ids = rng.integers(3, VOCAB, length).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        prompts.append(dict(ids=ids, logits=[round(x, 4) for x in logits.tolist()]))
    path.write_text(json.dumps(prompts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    for name, (changes, quantization, quantize) in FAMILIES.items():
        make(name, changes, quantization, quantize)
