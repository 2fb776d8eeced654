"""Builds models of Llama Nemotron Embed VL and Rerank VL, and records their answers.

    python tests/fidelity/make_nemotron_vl.py                   # all, into tests/fidelity/pictures
    python tests/fidelity/make_nemotron_vl.py nemotron_embed_vl # some of them

The answers are those of parts of transformers in float32, put together as in the code of NVIDIA's
folders: a `SiglipVisionModel`, the squares of HF `InternVLModel.pixel_shuffle`, torch's layers, and
a `LlamaModel` without a causal mask. Tiles are those of Pillow, and their number is that of
`find_closest_aspect_ratio` of these folders and of vLLM. Pillow up to 12 resizes the width first,
then the height.

Needs: torch, transformers >= 5, tokenizers, safetensors, Pillow. Nothing is downloaded.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaModel, SiglipVisionConfig, SiglipVisionModel
from transformers.models.internvl.modeling_internvl import InternVLModel

from corpus import sentences
from make_internvl_chat import tokenizer
from make_vision import draw

OUT = Path(__file__).parent / "pictures"
SIZES = [(28, 28), (61, 83), (64, 128), (5, 7), (120, 30)]
TEXTS = [text[:60] for text in sentences(7, 3)] + ["a"]
PAIRS = [("Where is the kettle?", text[:50]) for text in sentences(9, 3)]
WORDS = tokenizer()
START, END, CONTEXT = WORDS.convert_tokens_to_ids(["<img>", "</img>", "<IMG_CONTEXT>"])

TEXT = dict(
    vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5,
    bos_token_id=None, eos_token_id=2, pad_token_id=0,
    rope_parameters=dict(
        rope_type="llama3", rope_theta=10_000.0, factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=64,
    ),
)  # fmt: skip
TOWER = dict(
    hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2, image_size=32,
    patch_size=8, vision_use_head=False,
)  # fmt: skip


def randomize(module, seed):
    """Gives all parameters values that differ from their defaults and that bfloat16 has."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        noise = 1.0 + 0.3 * noise if is_norm else 0.2 * noise
        parameter.data.copy_(noise.to(torch.bfloat16))
    return module.eval()


class Nemotron(torch.nn.Module):
    """The model of the folders, and a classifier of `labels` classes if there are some."""

    def __init__(self, vision, text, fields, labels):
        super().__init__()
        self.merge, self.fields = round(1 / fields["downsample_ratio"]), fields
        self.vision_model = SiglipVisionModel._from_config(vision, attn_implementation="eager")
        self.language_model = LlamaModel._from_config(text, attn_implementation="eager")
        wide = vision.hidden_size * self.merge**2
        self.mlp1 = torch.nn.Sequential(
            torch.nn.LayerNorm(wide), torch.nn.Linear(wide, text.hidden_size), torch.nn.GELU(),
            torch.nn.Linear(text.hidden_size, text.hidden_size),
        )  # fmt: skip
        self.score = torch.nn.Linear(text.hidden_size, labels, bias=False) if labels else None

    def embeddings(self, tiles):
        """Returns the rows of an image in tiles, `[count, 3, side, side]`."""
        patches = self.vision_model(pixel_values=tiles).last_hidden_state
        side = round(patches.shape[1] ** 0.5)
        grid = patches.unflatten(1, (side, side))
        squares = InternVLModel.pixel_shuffle(None, grid, 1 / self.merge)
        return self.mlp1(squares.flatten(0, 2))

    def forward(self, tokens, images):
        ids = torch.tensor([tokens])
        rows = self.language_model.embed_tokens(ids)[0]
        if images:
            rows = rows.clone()
            rows[ids[0] == CONTEXT] = torch.cat([self.embeddings(image) for image in images])
        states = self.language_model(inputs_embeds=rows[None], use_cache=False).last_hidden_state[0]
        pooling = self.fields.get("pooling", "last")
        pooled = dict(avg=states.mean(0), cls=states[0], last=states[-1])[pooling]
        if self.score is None:
            return torch.nn.functional.normalize(pooled, dim=-1)[None]
        logits = self.score(pooled) / self.fields.get("temperature", 1.0)
        return (logits.sigmoid() if len(logits) == 1 else logits.softmax(-1))[None]


def best_grid(width, height, side, least, most):
    """Returns the columns and rows of an image's tiles: the largest product of the share of its
    area, up to 0.6, and of the likeness of ratios."""
    counts = range(1, most + 1)
    grids = [(x, y) for x in counts for y in counts if least <= x * y <= most]

    def likeness(grid):
        x, y = grid
        share = min((x * y * side * side) / (width * height), 0.6)
        return share * min(x / y / (width / height), width / height / (x / y))

    # The first of the best ones, by their number of tiles.
    return max(sorted(grids, key=lambda grid: grid[0] * grid[1]), key=likeness)


def tiles_of(size, side, least, most):
    """Returns the tiles of a drawn image as the tower takes them, with a thumbnail."""
    image = Image.fromarray(draw(*size))
    resized = lambda width, height: image.resize((width, image.height)).resize((width, height))
    columns, rows = best_grid(image.width, image.height, side, least, most)
    whole = resized(columns * side, rows * side)
    boxes = [(x * side, y * side) for y in range(rows) for x in range(columns)]
    tiles = [whole.crop((x, y, x + side, y + side)) for x, y in boxes]
    if len(tiles) > 1:
        tiles.append(resized(side, side))
    pixels = torch.tensor(np.stack([np.asarray(tile) for tile in tiles]))
    return ((pixels / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous()


def stored(model, names):
    """Returns the tensors with the names of a folder, of which `names` has the beginnings."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        part, rest = name.split(".", 1)
        tensors[f"{names[part]}.{rest}"] = tensor.to(torch.bfloat16).contiguous()
    return tensors


def build(name, seed, names, limits, fields, vision={}, text={}, processor=None, labels=0):
    """Makes a folder. `names` has the beginnings of its tensors, and `limits` the least and the
    most tiles that its files ask for."""
    tower = SiglipVisionConfig(**TOWER | vision)
    llama = LlamaConfig(**TEXT | text, is_causal=False)
    model = randomize(Nemotron(tower, llama, fields, labels), seed)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(stored(model, names), folder / "model.safetensors", metadata=dict(format="pt"))
    kind = "ForSequenceClassification" if labels else "Model"
    inner = llama.to_dict() | dict(
        architectures=["LlamaBidirectionalModel"], model_type="llama_bidirec", dtype="bfloat16",
    )  # fmt: skip
    inner.pop("is_causal")
    config = dict(
        architectures=[f"LlamaNemotronVL{kind}"], dtype="bfloat16",
        model_type="llama_nemotron_vl" + ("_rerank" if labels else ""),
        auto_map={"AutoModel": f"modeling_llama_nemotron_vl.LlamaNemotronVL{kind}"},
        force_image_size=tower.image_size, img_context_token_id=CONTEXT, llm_config=inner,
        vision_config=tower.to_dict() | dict(architectures=["SiglipVisionModel"]),
    ) | fields  # fmt: skip
    if labels:
        config["id2label"] = {str(index): f"LABEL_{index}" for index in range(labels)}
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    if processor is not None:
        own = processor | dict(processor_class="LlamaNemotronVLProcessor")
        (folder / "processor_config.json").write_text(json.dumps(own, indent=2) + "\n")
    WORDS.save_pretrained(folder)
    encode = lambda *texts: WORDS(*texts)["input_ids"]
    rounded = lambda rows: [[float(f"{x:.7g}") for x in row] for row in rows.tolist()]
    with torch.no_grad():
        texts = [(text, encode(text)) for text in TEXTS]
        texts = [
            dict(text=text, token_ids=ids, rows=rounded(model(ids, []))) for text, ids in texts
        ]
        prompts = []
        for images in ([0], [1], [2], [4, 3]):
            tiles = [tiles_of(SIZES[index], tower.image_size, *limits) for index in images]
            placed, whole = encode("two kettles"), encode("two kettles")
            for image in tiles:
                placed = placed + [CONTEXT] + encode(" and")
                count = len(model.embeddings(image))
                whole = whole + [START] + [CONTEXT] * count + [END] + encode(" and")
            rows = rounded(model(whole, tiles))
            prompts.append(dict(placed_token_ids=placed, token_ids=whole, images=images, rows=rows))
        pairs = []
        if labels == 1:
            scores = [model(encode(*pair), []).item() for pair in PAIRS]
            pairs = [dict(text_1=a, text_2=b, score=x) for (a, b), x in zip(PAIRS, scores)]
    images = [dict(height=height, width=width) for height, width in SIZES]
    task = "classify" if labels else "embed"
    golden = dict(task=task, images=images, texts=texts, prompts=prompts, pairs=pairs)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


# The names of published models: those of transformers 4, and all in a `model` of the reranker.
PUBLISHED = dict(
    vision_model="vision_model.vision_model", mlp1="mlp1", language_model="language_model"
)
RERANKER = {part: f"model.{name}" for part, name in PUBLISHED.items()} | dict(score="score")
# Those that transformers 5 writes.
FLAT = PUBLISHED | dict(vision_model="vision_model")
MODELS = {
    "nemotron_embed_vl": lambda n: build(
        n, 1, PUBLISHED, (1, 6),
        dict(downsample_ratio=0.5, pooling="avg", select_layer=-1, ps_version="v2"),
        processor=dict(max_input_tiles=6, dynamic_image_size=True, use_thumbnail=True),
    ),
    # Without a file of the processor, and with the default of `pooling`.
    "nemotron_embed_vl-last": lambda n: build(
        n, 2, FLAT, (2, 4),
        dict(
            downsample_ratio=0.25, dynamic_image_size=True, min_dynamic_patch=2,
            max_dynamic_patch=4,
        ),
        vision=dict(patch_size=4, hidden_act="gelu", num_hidden_layers=3),
        text=dict(num_key_value_heads=4, rope_parameters=dict(rope_type="default", rope_theta=5e3)),
    ),
    # With the default of `dynamic_image_size`.
    "nemotron_rerank_vl": lambda n: build(
        n, 3, RERANKER, (1, 3), dict(downsample_ratio=0.5, pooling="avg"),
        processor=dict(min_input_tiles=1, max_input_tiles=3), labels=1,
    ),
    "nemotron_rerank_vl-classes": lambda n: build(
        n, 4, RERANKER | dict(vision_model="model.vision_model"), (1, 1),
        dict(downsample_ratio=0.5, pooling="cls", temperature=0.5, dynamic_image_size=True),
        processor=dict(max_input_tiles=6, dynamic_image_size=False), labels=3,
    ),
}  # fmt: skip


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(MODELS):
        MODELS[name](name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
