"""Makes the fixtures of tests/formats: quantized matrices and tiny models in every format that
Playhouse reads, with the results of other implementations.

    python tests/formats/make_fixtures.py

Matrices: `gguf.quants` dequantizes the blocks of GGUF, `compressed_tensors` its own formats. GPTQ
and AWQ have no reference that installs without a GPU. This script builds their weights from
integers, zero points and scales, and packs them as the formats define it. So their values are known
from the start. Models: transformers computes the logits in float32 from the dequantized weights.
Tokenizers: transformers and sentencepiece encode the texts.

Needs: torch, transformers >= 5, gguf, compressed-tensors, sentencepiece, numpy. Nothing is
downloaded.
"""

import json
import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import numpy as np
import torch
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from vocabularies import BPE_VOCAB, OUT, finish, make_bpe_tokenizers, make_sentencepiece_tokenizer
from vocabularies import make_gemma4_tokenizer, make_kimi_tokenizer, make_roberta_tokenizer
from vocabularies import qwen_tokenizer, record

rng = np.random.default_rng(5)


# GGUF blocks


def random_blocks(kind, rows, columns):
    """Returns random valid blocks `[rows, bytes]`: any bits, but scales that are small numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    halves = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_K: [0, 2], T.Q6_K: [208]}[kind]
    for at in halves:
        scale = rng.normal(0, 0.01, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def quantized(kind, weight):
    """Returns `weight` in blocks of `kind`.

    The package cannot make K-quants. These are random, with values as large as those of `weight`.
    """
    if kind in (T.Q8_0, T.Q4_0, T.F16, T.BF16):
        return gguf.quants.quantize(weight, kind)
    blocks = random_blocks(kind, *weight.shape)
    spread = gguf.quants.dequantize(blocks, kind).std()
    factor = np.float16(1) * np.float16(weight.std() / spread)
    view = blocks.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    for at in {T.Q4_K: [0, 2], T.Q6_K: [208]}[kind]:
        half = view[:, at : at + 2].copy().view(np.float16)
        view[:, at : at + 2] = (half * factor).astype(np.float16).view(np.uint8)
    return blocks


def make_blocks():
    writer = gguf.GGUFWriter(OUT / "blocks.gguf", "llama")
    expected = {}
    for kind, columns in [(T.Q8_0, 96), (T.Q4_0, 96), (T.Q4_K, 512), (T.Q6_K, 512)]:
        blocks = random_blocks(kind, 2, columns)
        writer.add_tensor(f"{kind.name}.weight", blocks, raw_dtype=kind)
        expected[kind.name] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    for kind in (T.Q5_K, T.IQ4_NL):
        size = gguf.GGML_QUANT_SIZES[kind][1]
        writer.add_tensor(f"{kind.name}.weight", np.zeros((1, size), np.uint8), raw_dtype=kind)
    finish(writer)
    save_file(expected, OUT / "blocks.expected.safetensors")


# GPTQ and AWQ, by their definitions


def pack(fields, bits, axis, order=None):
    """Returns words of 32 bits along `axis`, the first field in the lowest bits."""
    per_word = 32 // bits
    fields = np.moveaxis(fields.astype(np.uint32), axis, -1)
    fields = fields.reshape(*fields.shape[:-1], -1, per_word)
    if order is not None:
        fields = fields[..., order]
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    words = np.bitwise_or.reduce(fields << shifts, axis=-1).astype(np.uint32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis).view(np.int32))


def integers(out, inputs, bits, groups, scale, symmetric=False):
    """Returns codes `[out, in]`, zero points and f16 scales `[out, groups]`."""
    codes = rng.integers(0, 2**bits, (out, inputs))
    # The first version of GPTQ's format cannot store a zero point of 0.
    zeros = rng.integers(1, 2**bits, (out, groups))
    if symmetric:
        zeros[:] = 2 ** (bits - 1)
    scales = (rng.uniform(0.5, 1.5, (out, groups)) * scale).astype(np.float16)
    return codes, zeros, scales


def gptq(out, inputs, bits=4, group=32, act_order=False, version=1, scale=0.01, symmetric=False):
    """Returns tensors by their names in the module, and the weight that they stand for."""
    group = inputs if group == -1 else group
    codes, zeros, scales = integers(out, inputs, bits, inputs // group, scale, symmetric)
    g_idx = np.arange(inputs, dtype=np.int32) // group
    if act_order:
        g_idx = rng.permutation(g_idx)
    weight = scales[:, g_idx].astype(np.float32) * (codes - zeros[:, g_idx]).astype(np.float32)
    stored_zeros = zeros - 1 if version == 1 else zeros
    tensors = dict(
        qweight=pack(codes.T, bits, 0),
        qzeros=pack(stored_zeros.T, bits, 1),
        scales=np.ascontiguousarray(scales.T),
        g_idx=g_idx,
    )
    return tensors, weight


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(out, inputs, group=32, scale=0.01):
    codes, zeros, scales = integers(out, inputs, 4, inputs // group, scale)
    g_idx = np.arange(inputs) // group
    weight = scales[:, g_idx].astype(np.float32) * (codes - zeros[:, g_idx]).astype(np.float32)
    tensors = dict(
        qweight=pack(codes.T, 4, 1, AWQ_ORDER),
        qzeros=pack(zeros.T, 4, 1, AWQ_ORDER),
        scales=np.ascontiguousarray(scales.T),
    )
    return tensors, weight


# compressed-tensors, by its own package


def compressed(out, inputs, bits, strategy, symmetric=True, group=32, packed=True, scale=0.3):
    """Returns tensors by their names in the module, and the weight that the package reads."""
    args = QuantizationArgs(
        num_bits=bits,
        type="int",
        symmetric=symmetric,
        strategy=strategy,
        group_size=group if strategy == "group" else None,
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    groups = inputs // group if strategy == "group" else 1
    weight = torch.from_numpy(rng.normal(0, scale, (out, inputs)).astype(np.float32))
    span = weight.reshape(out, groups, -1).abs().amax(-1)
    scales = (span / 2 ** (bits - 1)).to(torch.bfloat16)
    if strategy == "tensor":
        scales = scales.max().reshape(1)
    state = dict(weight=weight.to(torch.bfloat16), weight_scale=scales)
    if not symmetric:
        half = 2 ** (bits - 1)
        zeros = rng.integers(-half // 2, half // 2, tuple(scales.shape))
        state["weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
    compressor = PackedQuantizationCompressor if packed else NaiveQuantizationCompressor
    stored = compressor.compress(state, scheme)
    # Scales are in f32. With bf16 scales, the package would round the weight to bf16.
    exact = {**stored, "weight_scale": stored["weight_scale"].float()}
    weight = compressor.decompress(exact, scheme)["weight"].float()
    return stored, weight.numpy(), scheme


def make_matrices():
    folder = OUT / "matrices"
    folder.mkdir()
    tensors, expected = {}, {}

    def add(module, parts, weight):
        for name, part in parts.items():
            part = part if isinstance(part, torch.Tensor) else torch.from_numpy(part)
            tensors[f"{module}.{name}"] = part.contiguous()
        expected[module] = np.ascontiguousarray(weight)

    add("gptq4", *gptq(8, 32, group=16))
    add("gptq4_act_order", *gptq(8, 32, group=16, act_order=True))
    add("gptq4_row", *gptq(8, 32, group=-1, symmetric=True))
    add("gptq4_v2", *gptq(8, 32, group=16, version=2))
    add("gptq8", *gptq(8, 32, bits=8, group=16))
    add("gptq8_act_order", *gptq(8, 32, bits=8, group=16, act_order=True))
    add("gptq8_symmetric", *gptq(8, 32, bits=8, group=16, symmetric=True))
    add("awq", *awq(8, 32, group=16))
    # Six outputs do not fill a word of zero points.
    for name, *arguments in [
        ("packed4", 6, 32, 4, "group"),
        ("packed4_asymmetric", 16, 32, 4, "group", False),
        ("packed4_channel", 6, 32, 4, "channel"),
        ("packed8", 6, 32, 8, "group"),
        ("packed8_asymmetric", 6, 32, 8, "channel", False),
    ]:
        add(name, *compressed(*arguments, group=16)[:2])
    for name, *arguments in [
        ("int8", 6, 32, 8, "channel"),
        ("int8_asymmetric", 6, 32, 8, "channel", False),
        ("int8_tensor", 6, 32, 8, "tensor"),
    ]:
        add(name, *compressed(*arguments, packed=False)[:2])
    add("plain", dict(weight=np.ones((4, 4), np.float16)), np.ones((4, 4), np.float32))
    save_torch_file(tensors, folder / "model.safetensors")
    save_file(expected, folder / "expected.safetensors")


# Models

VOCAB = 32
TINY = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=2,
    pad_token_id=0,
)
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def random_model(config):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            values = rng.uniform(0.5, 1.5, parameter.shape)
        else:
            values = rng.normal(0, 0.2, parameter.shape)
        # These values are exact in f16, which is the format of some of them.
        parameter.data = torch.from_numpy(values.astype(np.float16).astype(np.float32))
    return model


def golden(model, path):
    """Returns prompts, and transformers' logits after their last tokens."""
    prompts = []
    for length in (1, 9, 40):
        ids = rng.integers(3, model.config.vocab_size, length).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        prompts.append(dict(ids=ids, logits=[round(x, 4) for x in logits.tolist()]))
    path.write_text(json.dumps(prompts, separators=(",", ":")) + "\n")


def make_folder(name, config, quantization_config, quantize):
    """Makes a model folder. `quantize(shape)` gives `(tensors, weight)` of each linear layer."""
    folder = OUT / name
    folder.mkdir()
    model = random_model(config)
    tensors = {}
    for key, parameter in model.state_dict().items():
        module = key.removesuffix(".weight")
        if key.endswith(".weight") and module.rsplit(".")[-1] in LINEAR:
            parts, weight = quantize(*parameter.shape)
            parameter.copy_(torch.from_numpy(weight))
            for part, values in parts.items():
                values = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
                tensors[f"{module}.{part}"] = values.contiguous()
        elif key != "lm_head.weight" or not config.tie_word_embeddings:
            tensors[key] = parameter.half().contiguous()
    save_torch_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    json_config = model.config.to_dict()
    json_config.update(dtype="float16", quantization_config=quantization_config)
    keep = [*TINY, "architectures", "tie_word_embeddings", "rope_parameters", "rms_norm_eps"]
    keep += ["dtype", "quantization_config", "head_dim", "model_type"]
    json_config["architectures"] = [type(model).__name__]
    json_config = {key: json_config[key] for key in keep if key in json_config}
    (folder / "config.json").write_text(json.dumps(json_config, indent=1) + "\n")
    golden(model, folder / "golden.json")


def make_folders():
    make_folder(
        "gptq",
        Qwen2Config(**TINY, tie_word_embeddings=True),
        dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False),
        lambda out, inputs: gptq(out, inputs, act_order=True, scale=0.03),
    )
    make_folder(
        "awq",
        LlamaConfig(**TINY, tie_word_embeddings=True),
        dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True),
        lambda out, inputs: awq(out, inputs, scale=0.03),
    )
    scheme = compressed(8, 64, 8, "channel", packed=False)[2].model_dump(mode="json")
    make_folder(
        "compressed-tensors",
        LlamaConfig(**TINY, tie_word_embeddings=False),
        dict(
            quant_method="compressed-tensors",
            format="int-quantized",
            config_groups={"group_0": scheme},
            ignore=["lm_head"],
        ),
        lambda out, inputs: compressed(out, inputs, 8, "channel", packed=False)[:2],
    )


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}


def gguf_name(key):
    parts = key.split(".")
    name = f"{GGUF_NAMES[parts[-2]]}.{parts[-1]}"
    return f"blk.{parts[2]}.{name}" if parts[1] == "layers" else name


def interleave(weight, heads):
    """Returns `weight` with its rows in the order of llama.cpp's converter for q and k."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def make_gguf(name, architecture, config, kinds, metadata):
    """Makes a model in one file. `kinds` gives the type of a matrix by the end of its name."""
    model = random_model(config)
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for key, parameter in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = parameter.numpy()
        module = key.split(".")[-2]
        kind = T.F32 if values.ndim == 1 else kinds.get(module, kinds["other"])
        permuted = architecture == "llama" and module in heads
        if kind == T.F32:
            stored = interleave(values, heads[module]) if permuted else values
            writer.add_tensor(gguf_name(key), np.ascontiguousarray(stored))
            continue
        blocks = quantized(kind, values)
        dense = gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(values.shape)
        parameter.copy_(torch.from_numpy(dense))
        if permuted:
            blocks = interleave(blocks, heads[module])
        writer.add_tensor(gguf_name(key), blocks, raw_dtype=kind)
    model.tie_weights()
    metadata(writer)
    finish(writer)
    golden(model, OUT / f"{name}.golden.json")


def rope_freqs(config):
    """Returns the converter's tensor for Llama 3's scaling: a divisor for each frequency."""
    rope = config.rope_parameters
    dim = config.hidden_size // config.num_attention_heads
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim)
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for frequency in frequencies:
        length = 2 * np.pi / frequency
        smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        if length < high:
            factors.append(1.0)
        elif length > low:
            factors.append(rope["factor"])
        else:
            factors.append(1.0 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


# Models with tokenizers


def make_models_in_gguf():
    rope = dict(
        rope_type="llama3",
        rope_theta=10_000.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    config = LlamaConfig(**TINY, tie_word_embeddings=False, rope_parameters=rope)

    def llama_metadata(writer):
        writer.add_tensor("rope_freqs.weight", rope_freqs(config))

    kinds = dict(q_proj=T.Q4_0, k_proj=T.Q8_0, v_proj=T.F16, embed_tokens=T.F16, other=T.Q8_0)
    make_gguf("llama", "llama", config, kinds, llama_metadata)
    tiny = {**TINY, "hidden_size": 256, "vocab_size": BPE_VOCAB, "head_dim": 16}
    config = Qwen3Config(**tiny, tie_word_embeddings=True)
    metadata, encode = qwen_tokenizer()

    def qwen_metadata(writer):
        writer.add_key_length(16)
        writer.add_value_length(16)
        metadata(writer)

    kinds = dict(v_proj=T.Q6_K, up_proj=T.Q6_K, o_proj=T.Q8_0, down_proj=T.Q4_0, other=T.Q4_K)
    make_gguf("qwen3", "qwen3", config, kinds, qwen_metadata)
    record("qwen2", encode)


def make_parts():
    """Writes llama.gguf in parts, the first without tensors, as `llama-gguf-split` may do."""
    whole = gguf.GGUFReader(OUT / "llama.gguf")
    writer = gguf.GGUFWriter(None, "llama", split_max_tensors=5, small_first_shard=True)
    for name, field in whole.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, *of_list = field.types
            sub_type = of_list[-1] if of_list else None
            writer.add_key_value(name, field.contents(), kind, sub_type=sub_type)
    for tensor in whole.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    folder = OUT / "parts"
    folder.mkdir(exist_ok=True)
    writer.write_header_to_file(folder / "llama.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "tokenizers").mkdir(parents=True)
    make_blocks()
    make_matrices()
    make_folders()
    make_models_in_gguf()
    make_parts()
    make_bpe_tokenizers()
    make_kimi_tokenizer()
    make_roberta_tokenizer()
    make_sentencepiece_tokenizer()
    make_gemma4_tokenizer()
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{size / 1000:.0f} kB")
