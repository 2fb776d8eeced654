"""Builds the models of DeepSeek-OCR and DeepSeek-OCR 2 for the vision tests, and records
transformers' answers.

    python tests/fidelity/make_deepseek_ocr.py                 # all of them
    python tests/fidelity/make_deepseek_ocr.py deepseek_ocr    # some of them

transformers has no class of DeepSeek-OCR. It has that of Unlimited-OCR, whose towers, projector and
text model are the same, except for the window of its text model, which is left out here. The models
are written in the names and fields of their authors (deepseek-ai/DeepSeek-OCR). Of DeepSeek-OCR 2,
the queries have the numbers of small images. The pixels
are those of Pillow, which the authors' code and vLLM use. Each model is a folder as
`make_vision.py` writes it, and `local` of an image has its tiles.

Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import json
import re
import sys

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from transformers import (
    DeepseekOcr2Config,
    DeepseekOcr2ForConditionalGeneration,
    UnlimitedOcrConfig,
    UnlimitedOcrForConditionalGeneration,
)
from transformers.models.unlimited_ocr.image_processing_unlimited_ocr import (
    get_optimal_tiled_canvas,
)

from make_vision import HERE, IMAGE_TOKEN, SIZES, draw, placed_prompt, randomize, rounded, tokenizer

PROMPTS = ([], [1], [3, 2], [4, 0, 4])
# The least tiles of an image that is cut.
TILES_MIN = 2
CLIP = "clip-l-14-224"
SAM = "sam_vit_b"
QWEN = "qwen2-0-5b"
RESIZE = Image.Image.resize


def width_first(image, size, *args, **options):
    """Resizes as Pillow up to 12. Its version 13 begins with the height where that is cheaper."""
    across = RESIZE(image, (size[0], image.height), *args, **options)
    return RESIZE(across, size, *args, **options)


# Also for `ImageOps.pad`.
Image.Image.resize = width_first


def models():
    """Returns the models: the fields of the text model, of the two towers, and of the processor."""
    text = dict(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=12,
        first_k_dense_replace=1, n_group=1, topk_group=1, topk_method="greedy", bos_token_id=None,
        eos_token_id=2,
    )
    sam = dict(
        width=24, layers=3, heads=2, global_attn_indexes=[1], downsample_channels=[12, 28],
        image_size=64, output_channels=8, window_size=14,
    )
    clip = dict(width=28, layers=2, heads=2, image_size=28, patch_size=14)
    return {
        # Positions grow for the whole image, and shrink for tiles. Windows are wider than images.
        "deepseek_ocr": (text, sam, clip, dict(base_size=80, image_size=32)),
        # Windows within the images, with a rest. Tiles are larger than the whole image.
        "deepseek_ocr-windows": (
            text | dict(n_shared_experts=1, first_k_dense_replace=0, num_experts_per_tok=3),
            sam | dict(
                heads=3, layers=4, global_attn_indexes=[0, 3], image_size=96, window_size=3,
                downsample_channels=[16, 24],
            ),
            clip | dict(width=24, heads=3, image_size=42),
            dict(base_size=48, image_size=80, max_crops=3),
        ),
        "deepseek_ocr2": (
            text, sam, dict(dim=32, layers=2, heads=4, kv_heads=2, intermediate_size=40),
            dict(base_size=80, image_size=48, max_crops=4),
        ),
        "deepseek_ocr2-windows": (
            text | dict(n_shared_experts=1, first_k_dense_replace=0),
            sam | dict(layers=2, global_attn_indexes=[0], window_size=2, image_size=96),
            dict(dim=24, layers=3, heads=3, kv_heads=1, intermediate_size=36),
            dict(base_size=48, image_size=80, max_crops=3),
        ),
    }


def second_config(text, sam, qwen):
    """Returns the config of transformers for DeepSeek-OCR 2."""
    sizes = dict(
        hidden_size="dim", num_hidden_layers="layers", num_attention_heads="heads",
        num_key_value_heads="kv_heads", intermediate_size="intermediate_size",
    )
    same = ("global_attn_indexes", "image_size", "output_channels", "window_size")
    sparse = text["num_hidden_layers"] - text["first_k_dense_replace"]
    return DeepseekOcr2Config(
        text_config=text | dict(
            mlp_layer_types=["dense"] * text["first_k_dense_replace"] + ["sparse"] * sparse,
        ),
        vision_config=dict(
            sam_config={name: sam[name] for name in same} | dict(
                hidden_size=sam["width"], num_hidden_layers=sam["layers"],
                num_attention_heads=sam["heads"],
                downsample_channels=[sam["downsample_channels"][0], qwen["dim"]],
            ),
            encoder_config={ours: qwen[theirs] for ours, theirs in sizes.items()} | dict(
                rope_parameters=dict(rope_type="default", rope_theta=1_000_000.0),
            ),
        ),
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )


def config_of(text, sam, clip):
    """Returns the config of transformers."""
    sides = dict(num_hidden_layers="layers", num_attention_heads="heads", hidden_size="width")
    shape = lambda fields: {ours: fields[theirs] for ours, theirs in sides.items()}
    same = ("global_attn_indexes", "downsample_channels", "image_size", "output_channels")
    return UnlimitedOcrConfig(
        text_config=text | dict(layer_types=["full_attention"] * text["num_hidden_layers"]),
        vision_config=dict(
            sam_config=shape(sam) | {name: sam[name] for name in (*same, "window_size")}
            | dict(mlp_dim=4 * sam["width"]),
            encoder_config=shape(clip) | dict(
                intermediate_size=4 * clip["width"], image_size=clip["image_size"],
                patch_size=clip["patch_size"],
            ),
        ),
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )


def authors_config(text, sam, clip):
    """Returns the fields of `config.json` as the authors write them. Published ones leave
    `output_channels` and `window_size` to the code."""
    sam = dict(sam)
    image_size, is_second = sam.pop("image_size"), "dim" in clip
    features = clip["dim"] if is_second else clip["width"] + sam["downsample_channels"][1]
    architecture = f"DeepseekOCR{2 if is_second else ''}ForCausalLM"
    return dict(
        architectures=[architecture], model_type="deepseek_vl_v2", tile_tag="2D",
        global_view_pos="head", torch_dtype="bfloat16",
        candidate_resolutions=[[1024, 1024]],
        language_config=text | dict(
            architectures=["DeepseekV2ForCausalLM"], use_mla=False, kv_lora_rank=None,
            q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, v_head_dim=0,
            torch_dtype="bfloat16",
        ),
        projector_config=dict(
            input_dim=features, model_type="mlp_projector", n_embed=text["hidden_size"],
            projector_type="linear",
        ),
        vision_config=dict(
            image_size=image_size, mlp_ratio=3.7362, model_type="vision",
            model_name="deepencoderv2" if is_second else "deeplip_b_l",
            width={QWEN if is_second else CLIP: clip, SAM: sam},
        ),
    )


QWEN2 = r"model.qwen2_model.model.model.\1."
NAMES = (
    (r"^model\.language_model\.", "model."),
    (r"^model\.multi_modal_projector\.", "model.projector.layers."),
    (r"^model\.view_separator", "model.view_seperator"),
    (r"^model\.vision_tower\.query_(\d+)_resolution", r"model.qwen2_model.query_\1"),
    (r"^model\.vision_tower\.vision_encoder\.(layers|norm)\.", QWEN2),
    (r"^model\.vision_tower\.vision_encoder\.", "model.vision_model."),
    (r"^model\.vision_model\.encoder\.", "model.vision_model.transformer."),
    (r"^model\.vision_tower\.sam_encoder\.", "model.sam_model."),
    (r"sam_model\.layers\.(\d+)\.layer_norm(\d)", r"sam_model.blocks.\1.norm\2"),
    (r"sam_model\.layers\.", "sam_model.blocks."),
    (r"sam_model\.patch_embed\.projection", "sam_model.patch_embed.proj"),
    (r"sam_model\.neck\.conv1", "sam_model.neck.0"),
    (r"sam_model\.neck\.layer_norm1", "sam_model.neck.1"),
    (r"sam_model\.neck\.conv2", "sam_model.neck.2"),
    (r"sam_model\.neck\.layer_norm2", "sam_model.neck.3"),
    (r"sam_model\.proj\.conv1", "sam_model.net_2"),
    (r"sam_model\.proj\.conv2", "sam_model.net_3"),
)


def authors_tensors(tensors):
    """Returns the tensors in the names of the authors."""
    found = {}
    for name, tensor in tensors.items():
        for ours, theirs in NAMES:
            name = re.sub(ours, theirs, name)
        layer, _, expert = name.partition(".mlp.experts.")
        if expert:
            for index, matrix in enumerate(tensor):
                parts = dict(down_proj=matrix)
                if expert == "gate_up_proj":
                    parts = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2)))
                for part, values in parts.items():
                    found[f"{layer}.mlp.experts.{index}.{part}.weight"] = values
        else:
            found[name] = tensor
    for name in [name for name in found if "vision_model" in name and ".q_proj." in name]:
        parts = [found.pop(name.replace(".q_proj.", f".{part}_proj.")) for part in "qkv"]
        found[name.replace(".q_proj.", ".qkv_proj.")] = torch.cat(parts)
    if "model.vision_model.embeddings.class_embedding" not in found:
        return {name: it.to(torch.bfloat16).contiguous() for name, it in found.items()}
    # The authors' checkpoint has the convolution of CLIP, too. It has no effect.
    width = len(found["model.vision_model.embeddings.class_embedding"])
    found["model.vision_model.embeddings.patch_embedding.weight"] = torch.ones(width, 3, 2, 2)
    return {name: it.to(torch.bfloat16).contiguous() for name, it in found.items()}


class Model:
    def __init__(self, name):
        text, sam, clip, self.processor = models()[name]
        self.folder = HERE / "vision" / name
        self.fields = authors_config(text, sam, clip)
        self.is_second = "dim" in clip
        kind, config = UnlimitedOcrForConditionalGeneration, config_of
        if self.is_second:
            kind, config = DeepseekOcr2ForConditionalGeneration, second_config
        self.model = kind._from_config(
            config(text, sam, clip), dtype=torch.float32, attn_implementation="eager",
        ).eval()
        if self.is_second:
            # As many queries as a tile and a whole image have places.
            tower = self.model.model.vision_tower
            for name_of_size, pixels in (("768", "image_size"), ("1024", "base_size")):
                side = -(-(self.processor[pixels] // 16) // 4)
                queries = torch.nn.Embedding(side**2, clip["dim"])
                setattr(tower, f"query_{name_of_size}_resolution", queries)
        randomize(self.model, seed=sum(name.encode()))
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).float()

    def save(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = authors_tensors(self.model.state_dict())
        save_file(tensors, self.folder / "model.safetensors", metadata=dict(format="pt"))
        processor = dict(
            processor_class="DeepseekVLV2Processor", image_token="<image>", patch_size=16,
            downsample_ratio=4, image_mean=[0.5] * 3, image_std=[0.5] * 3, normalize=True,
            candidate_resolutions=[[1024, 1024]], sft_format="deepseek", add_special_token=False,
            mask_prompt=False, ignore_id=-100, pad_token="<pad>",
        )
        for file, fields in (
            ("config.json", self.fields), ("processor_config.json", processor | self.processor),
        ):
            text = json.dumps(fields, indent=2, sort_keys=True) + "\n"
            (self.folder / file).write_text(text)
        tokenizer().save_pretrained(self.folder)

    def views(self, image):
        """Returns the whole image, its tiles, and their columns and rows, as Pillow makes them."""
        base, side = self.processor["base_size"], self.processor["image_size"]
        grid, tiles = (1, 1), []
        if max(image.size) > side:
            limits = TILES_MIN, self.processor.get("max_crops", 6)
            grid = get_optimal_tiled_canvas((image.height, image.width), (side, side), *limits)
            large = image.resize((side * grid[0], side * grid[1]), Image.Resampling.BICUBIC)
            for at in range(grid[0] * grid[1]):
                left, top = at % grid[0] * side, at // grid[0] * side
                tiles.append(np.array(large.crop((left, top, left + side, top + side))))
        whole = ImageOps.pad(image, (base, base), color=(127, 127, 127))
        return np.array(whole)[None], np.array(tiles), grid


def image_record(model, size):
    """Returns the embeddings of an image, and its record."""
    whole, tiles, grid = model.views(Image.fromarray(draw(*size)))
    scaled = lambda pixels: (torch.tensor(pixels).permute(0, 3, 1, 2) / 255.0 - 0.5) / 0.5
    if model.is_second:
        embeddings = second_features(model, scaled(whole), [scaled(it[None]) for it in tiles])
        return embeddings, record_of(size, whole, tiles, grid, embeddings)
    local = {}
    if len(tiles):
        local = dict(pixel_values_local=scaled(tiles), num_local_patches=[len(tiles)])
    features = model.model.model.get_image_features(
        scaled(whole), patches_grid=[grid], return_dict=True, **local,
    )
    embeddings = features.pooler_output[0]
    return embeddings, record_of(size, whole, tiles, grid, embeddings)


def second_features(model, whole, tiles):
    """Returns the embeddings of an image of DeepSeek-OCR 2. Its class chooses the queries by the
    number of places, and those of small images are the first table."""
    inner, tower = model.model.model, model.model.model.vision_tower
    of_tiles = tower.query_768_resolution
    features = [inner.get_image_features(tile, return_dict=True).pooler_output[0] for tile in tiles]
    tower.query_768_resolution = tower.query_1024_resolution
    of_whole = inner.get_image_features(whole, return_dict=True).pooler_output[0]
    tower.query_768_resolution = of_tiles
    # Each ends with the mark behind an image.
    return torch.cat([part[:-1] for part in features] + [of_whole])


def record_of(size, whole, tiles, grid, embeddings):
    """Returns the record of an image."""
    shape = lambda pixels: dict(shape=list(pixels.shape), pixels=pixels.tobytes().hex())
    return dict(
        height=size[0], width=size[1], **shape(whole), grid=None,
        tiles=[grid[1], grid[0], 0] if len(tiles) else None,
        local=shape(tiles) if len(tiles) else None,
        num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
        tokens=[IMAGE_TOKEN] * len(embeddings),
    )


def prompt_record(model, records, chosen):
    """Runs a prompt of text with the images of these indices in it."""
    generator = torch.Generator().manual_seed(len(chosen))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    for index in chosen:
        after = text(4)
        tokens += records[index][1]["tokens"] + after
        placed += [IMAGE_TOKEN] + after
    features = [records[index][0] for index in chosen]
    features = torch.cat(features) if features else torch.zeros(0, 32)
    answers = placed_prompt(model.model, torch.tensor([tokens]), IMAGE_TOKEN, features)
    return dict(
        token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed, **answers,
    )


@torch.no_grad()
def build(name):
    model = Model(name)
    model.save()
    records = [image_record(model, size) for size in SIZES]
    prompts = [prompt_record(model, records, chosen) for chosen in PROMPTS]
    texts = {"<image>": [IMAGE_TOKEN]}
    golden = dict(images=[record for _, record in records], prompts=prompts, texts=texts)
    (model.folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(models()):
        build(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
