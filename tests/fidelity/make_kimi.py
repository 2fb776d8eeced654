"""Builds the models of Kimi-VL and Kimi K2.5 for the vision tests and records their answers.

    python tests/fidelity/make_kimi.py              # all of them, into tests/fidelity/vision
    python tests/fidelity/make_kimi.py kimi_vl      # some of them

The tower, the projector and the text model are those of HF `Kimi_K25ForConditionalGeneration`. Its
tensors and fields are written in the form of the authors, which transformers does not write.
Kimi-VL has no class in transformers. Its tower is the same for images, under other names.

Pixels are those of HF `Kimi_K25ImageProcessor` in `kimi_k25`. In the others Pillow resizes them to
the sizes of vLLM's formulas (`kimi_vl.py`, `kimi_k25_vision_fused.py`), which are written here
again: there the processors are code in the authors' folders.

Each model is a folder as `make_vision.py` writes it. Needs what `make_vision.py` needs. Nothing is
downloaded.
"""

import json
import math
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, Kimi_K25Config, Kimi_K25ImageProcessor

from make_vision import CLIP, HERE, SIZES, UNIT, draw, randomize, rounded, tokenizer

# The token of an embedding.
IMAGE = 509
PROMPTS = ([], [1], [3, 2], [4, 0, 4])
# Names in transformers and in the authors' files.
NAMES = [
    ("model.language_model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
    ("model.vision_tower.", "vision_tower."),
    ("vision_tower.layers.", "vision_tower.encoder.blocks."),
    ("vision_tower.final_layernorm.", "vision_tower.encoder.final_layernorm."),
    (".pos_emb.position_embeddings", ".pos_emb.weight"),
    (".norm1.", ".norm0."), (".norm2.", ".norm1."), (".attn.proj.", ".wo."),
    (".mlp.fc1.", ".mlp.fc0."), (".mlp.fc2.", ".mlp.fc1."),
    ("model.mm_projector.", "mm_projector."),
    ("mm_projector.in_proj.", "mm_projector.proj.0."),
    ("mm_projector.out_proj.", "mm_projector.proj.2."),
]
KIMI_VL_NAMES = [
    ("mm_projector.proj.0.", "multi_modal_projector.linear_1."),
    ("mm_projector.proj.2.", "multi_modal_projector.linear_2."),
    ("mm_projector.", "multi_modal_projector."),
]
# Fields of the tower in transformers, in Kimi-VL, and in Kimi K2.5.
FIELDS = {
    "hidden_size": ("hidden_size", "vt_hidden_size"),
    "intermediate_size": ("intermediate_size", "vt_intermediate_size"),
    "num_attention_heads": ("num_attention_heads", "vt_num_attention_heads"),
    "num_hidden_layers": ("num_hidden_layers", "vt_num_hidden_layers"),
    "patch_size": ("patch_size", "patch_size"),
    "pos_emb_height": ("init_pos_emb_height", "init_pos_emb_height"),
    "pos_emb_width": ("init_pos_emb_width", "init_pos_emb_width"),
    "merge_kernel_size": ("merge_kernel_size", "merge_kernel_size"),
}
# The fields of a text model that mean nothing to it.
UNWRITTEN = (
    "_name_or_path", "architectures", "chunk_size_feed_forward", "id2label", "label2id",
    "is_encoder_decoder", "output_attentions", "output_hidden_states", "output_router_logits",
    "problem_type", "return_dict",
)


def text_config(**changes):
    return dict(
        model_type="deepseek_v3", vocab_size=512, hidden_size=32, intermediate_size=48,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=512, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=8, num_experts_per_tok=2, n_group=1,
        topk_group=1, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1,
        routed_scaling_factor=2.4, initializer_range=0.2, bos_token_id=None, eos_token_id=2,
        pad_token_id=0,
    ) | changes


def models():
    """Returns the models: the fields of the text model, of the tower, and of the processor."""
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        patch_size=7, pos_emb_height=5, pos_emb_width=5, merge_kernel_size=[2, 2],
    )
    other = tower | dict(
        num_hidden_layers=2, num_attention_heads=3, patch_size=5, pos_emb_height=8,
        pos_emb_width=8, merge_kernel_size=[3, 3],
    )
    of_vl = dict(pad_input=True, num_pooled_tokens=1024)
    of_authors = dict(
        in_patch_limit_each_frame=4096, in_patch_limit_video=None, fixed_output_tokens=None,
        sample_fps=2.0, max_num_frames_each_video=None, temporal_merge_kernel_size=4,
        timestamp_mode="hh:mm:ss.fff",
    )
    return {
        "kimi_vl": (
            text_config(), tower,
            of_vl | dict(in_token_limit=60, patch_size=7, merge_kernel_size=[2, 2], **UNIT),
        ),
        # Several groups of experts, and queries of low rank. The squares have nine patches.
        "kimi_vl-wide": (
            text_config(
                q_lora_rank=12, n_group=2, topk_group=1, num_hidden_layers=3, v_head_dim=12,
                rope_parameters=dict(rope_type="default", rope_theta=800_000.0),
            ),
            other, of_vl | dict(in_token_limit=100, patch_size=5, merge_kernel_size=[3, 3], **CLIP),
        ),
        "kimi_k25": (
            text_config(q_lora_rank=12), tower,
            dict(
                image_processor_type="Kimi_K25ImageProcessor", patch_size=7, merge_size=2,
                max_patches=50, size=dict(max_height=16, max_width=16), **UNIT,
            ),
        ),
        "kimi_k25-authors": (
            text_config(n_shared_experts=1, model_type="kimi_k2"),
            other | dict(num_hidden_layers=3),
            dict(media_proc_cfg=of_authors | dict(
                in_patch_limit=90, patch_size=5, merge_kernel_size=3, patch_limit_on_one_side=20,
                **CLIP,
            )),
        ),
    }


def is_vl(name):
    return name.startswith("kimi_vl")


def side_by_side(tensor, heads):
    """Returns rows of heads in which the two that turn together are neighbours."""
    halves = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def authors_tensors(model, name):
    """Returns the tensors as the authors' files have them."""
    tensors, heads = {}, model.config.vision_config.num_attention_heads
    for own, tensor in model.state_dict().items():
        for old, new in NAMES + (KIMI_VL_NAMES if is_vl(name) else []):
            own = own.replace(old, new)
        if own.endswith("mlp.experts.gate_up_proj"):
            for index, both in enumerate(tensor):
                gate, up = both.chunk(2)
                expert = own.replace("gate_up_proj", str(index))
                tensors |= {f"{expert}.gate_proj.weight": gate, f"{expert}.up_proj.weight": up}
        elif own.endswith("mlp.experts.down_proj"):
            for index, down in enumerate(tensor):
                tensors[own.replace("down_proj", f"{index}.down_proj.weight")] = down
        else:
            tensors[own] = tensor
    for own in [own for own in tensors if ".attn.q_proj." in own]:
        of = lambda part: tensors.pop(own.replace("q_proj", part))
        q, k, v = of("q_proj"), of("k_proj"), of("v_proj")
        tensors[own.replace("attn.q_proj", "wqkv")] = torch.cat(
            [side_by_side(q, heads), side_by_side(k, heads), v]
        )
    return {own: it.to(torch.bfloat16).contiguous() for own, it in tensors.items()}


def authors_config(name, config, text_type, tower):
    """Returns the config as the authors' folders have it."""
    index = 0 if is_vl(name) else 1
    vision = {FIELDS[field][index]: value for field, value in tower.items()}
    text = {name: it for name, it in config["text_config"].items() if name not in UNWRITTEN}
    text |= dict(model_type=text_type)
    text |= dict(topk_method="noaux_tc", scoring_func="sigmoid")
    rope = text.pop("rope_parameters")
    text |= dict(rope_theta=rope["rope_theta"], rope_scaling=None)
    common = dict(
        media_placeholder_token_id=IMAGE, text_config=text, torch_dtype="bfloat16",
        tie_word_embeddings=False,
    )
    if is_vl(name):
        return common | dict(
            architectures=["KimiVLForConditionalGeneration"], model_type="kimi_vl",
            vision_config=vision | dict(model_type="moonvit"),
        )
    vision |= dict(
        init_pos_emb_time=4, pos_emb_type="divided_fixed", mm_projector_type="patchmerger",
        mm_hidden_size=tower["hidden_size"], projector_ln_eps=1e-5, merge_type="sd2_tpool",
        video_attn_type="spatial_temporal",
    )
    return common | dict(
        architectures=["KimiK25ForConditionalGeneration"], model_type="kimi_k25",
        vision_config=vision,
    )


def target(name, fields, height, width):
    """Returns the size of an image before pixels are added, by the formulas of vLLM."""
    patch = fields["patch_size"]
    rows, columns = height // patch, width // patch
    if is_vl(name):
        limit = fields["in_token_limit"]
        scale = math.sqrt(limit / (rows * columns)) if rows * columns > limit else 1.0
        return int(height * scale), int(width * scale)
    longest = fields["patch_limit_on_one_side"] * patch
    count = max(1.0, rows) * max(1.0, columns)
    scale = min(
        1.0, math.sqrt(fields["in_patch_limit"] / count), longest / width, longest / height,
    )
    return tuple(min(max(1, int(side * scale)), longest) for side in (height, width))


def pixels_of(name, fields, size):
    """Returns the bytes of an image, `[height, width, 3]`."""
    image = Image.fromarray(draw(*size))
    if "image_processor_type" in fields:
        own = {key: value for key, value in fields.items() if key != "image_processor_type"}
        processor = Kimi_K25ImageProcessor(**own, do_rescale=False, do_normalize=False)
        made = processor([image], return_tensors="pt")
        (_, rows, columns), side = made["image_grid_thw"][0].tolist(), fields["patch_size"]
        patches = made["pixel_values"].to(torch.uint8).reshape(rows, columns, 3, side, side)
        return patches.permute(0, 3, 1, 4, 2).reshape(rows * side, columns * side, 3).numpy()
    fields = fields.get("media_proc_cfg", fields)
    height, width = target(name, fields, *size)
    # Pillow 13 changes the height first where that is cheaper, and earlier ones never do.
    across = image.resize((width, image.height), Image.Resampling.BICUBIC)
    resized = np.asarray(across.resize((width, height), Image.Resampling.BICUBIC))
    merge = fields["merge_kernel_size"]
    square = fields["patch_size"] * (merge[0] if isinstance(merge, list) else merge)
    return np.pad(resized, ((0, -height % square), (0, -width % square), (0, 0)))


def patches_of(fields, pixels):
    """Returns the numbers of an image's patches, and its grid."""
    fields = fields.get("media_proc_cfg", fields)
    side = fields["patch_size"]
    numbers = torch.tensor(pixels).float() / 255.0
    numbers = (numbers - torch.tensor(fields["image_mean"])) / torch.tensor(fields["image_std"])
    rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
    patches = numbers.reshape(rows, side, columns, side, 3).permute(0, 2, 4, 1, 3)
    return patches.reshape(-1, 3, side, side), [1, rows, columns]


def answers(model, tokens, inputs, count=12):
    """Returns the log-probabilities after a prompt, and the likeliest tokens."""
    begin, first, tokens = len(tokens), None, list(tokens)
    while len(tokens) < begin + count:
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False, **inputs).logits
        row = logits[0, -1].log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        tokens.append(int(row.argmax()))
    assert IMAGE not in tokens[begin:], "a token of an answer is that of an image"
    return dict(last_log_probs=rounded(first), greedy_token_ids=tokens[begin:])


@torch.no_grad()
def build(name, text, tower, fields):
    folder = HERE / "vision" / name
    folder.mkdir(parents=True, exist_ok=True)
    hf_text = text | dict(model_type="deepseek_v3")
    config = Kimi_K25Config(
        text_config=hf_text, vision_config=tower, projection_hidden_size=tower["hidden_size"],
        image_token_id=IMAGE, tie_word_embeddings=False,
    )
    made = AutoModelForImageTextToText.from_config
    model = made(config, dtype=torch.float32, attn_implementation="eager").eval()
    randomize(model, seed=sum(name.encode()))
    for buffer in [it for own, it in model.named_buffers() if "correction_bias" in own]:
        buffer.normal_(0.0, 0.2, generator=torch.Generator().manual_seed(len(name)))
    for tensor in model.state_dict().values():
        tensor.copy_(tensor.to(torch.bfloat16).float())
    tensors = authors_tensors(model, name)
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    tokenizer().save_pretrained(folder)
    write = lambda file, it: (folder / file).write_text(
        json.dumps(it, indent=2, sort_keys=True) + "\n"
    )
    write("config.json", authors_config(name, config.to_dict(), text["model_type"], tower))
    write("preprocessor_config.json", fields)
    records, items = [], []
    for size in SIZES:
        pixels = pixels_of(name, fields, size)
        patches, grid = patches_of(fields, pixels)
        features = model.get_image_features(patches, torch.tensor([grid]), return_dict=True)
        embeddings = torch.cat(list(features.pooler_output)).flatten(0, -2)
        items.append((patches, grid))
        records.append(dict(
            height=size[0], width=size[1], shape=[1, *pixels.shape], grid=None, tiles=None,
            pixels=pixels.tobytes().hex(), num_embeds=len(embeddings),
            embeddings=rounded(embeddings), by_layer=[], tokens=[IMAGE] * len(embeddings),
        ))
    prompts = []
    for chosen in PROMPTS:
        generator = torch.Generator().manual_seed(len(chosen))
        words = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = words(3)
        placed = list(tokens)
        for index in chosen:
            after = words(4)
            tokens += records[index]["tokens"] + after
            placed += [IMAGE] + after
        inputs = {} if not chosen else dict(
            pixel_values=torch.cat([items[index][0] for index in chosen]),
            image_grid_thw=torch.tensor([items[index][1] for index in chosen]),
        )
        prompts.append(dict(
            token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed,
            **answers(model, tokens, inputs),
        ))
    golden = dict(images=records, prompts=prompts, texts={})
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name])
        print(name, flush=True)


if __name__ == "__main__":
    main()
