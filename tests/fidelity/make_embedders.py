"""Builds multimodal models that only pool, and records Hugging Face transformers' answers.

    python tests/fidelity/make_embedders.py               # all of them, into tests/fidelity/pictures
    python tests/fidelity/make_embedders.py colultravbert # some of them

Each folder is as `make_pictures.py` writes it: models of ModernVBERT whose config has the form of its
authors, and of UltraVBERT.

Needs what `make_pictures.py` needs. Nothing is downloaded.
"""

import json
import shutil
import sys

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    AutoImageProcessor,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    Idefics3Processor,
    SiglipVisionConfig,
    UltrabertConfig,
    UltraVBertConfig,
    UltraVBertModel,
)

from make_pictures import OUT, SIZES, modernvbert, normalized, randomize, rounded
from make_vision import draw, models, tokens_of
from make_vision import tokenizer as tagged_tokenizer

# The images of each prompt.
PROMPTS = ([], [1], [3, 4])


def write(name, tensors, config, pixels):
    """Writes a folder. Returns it with its image processor."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stored = {key: value.to(torch.bfloat16).contiguous() for key, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata=dict(format="pt"))
    config = {key: value for key, value in config.items() if value is not None}
    text = json.dumps(config, indent=2, default=str, sort_keys=True)
    (folder / "config.json").write_text(text + "\n")
    tagged_tokenizer().save_pretrained(folder)
    text = json.dumps(pixels, indent=2, sort_keys=True)
    (folder / "preprocessor_config.json").write_text(text + "\n")
    return folder, AutoImageProcessor.from_pretrained(folder)


def prompts_of(processor, image_token, count, rows_of):
    """Returns prompts of text and images with their rows. An image of one tile has `count`
    embeddings."""
    whole = Idefics3Processor(processor, tagged_tokenizer(), count)
    generator = torch.Generator().manual_seed(1)
    prompts = []
    for images in PROMPTS:
        text = lambda length: torch.randint(5, 400, (length,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in images:
            after = text(4)
            tokens += tokens_of(whole, Image.fromarray(draw(*SIZES[index])), count, image_token)
            tokens += after
            placed += [image_token] + after
        drawn = [Image.fromarray(draw(*SIZES[index])) for index in images]
        inputs = dict(processor([drawn], return_tensors="pt")) if drawn else {}
        inputs = {key: inputs[key] for key in inputs if key.startswith("pixel")}
        ids = torch.tensor([tokens])
        with torch.no_grad():
            rows = rows_of(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs)
        prompts.append(dict(
            placed_token_ids=placed, token_ids=tokens, images=images, rows=rounded(rows),
        ))  # fmt: skip
    return prompts


def record(folder, task, prompts):
    images = [dict(height=height, width=width) for height, width in SIZES]
    golden = dict(task=task, images=images, texts=[], prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def of_modern_authors(name, seed, architectures, vision, **text):
    """ColModernVBERT with the names and the fields of its authors, whose config may name no class."""
    inner, pixels = models()["idefics3"]()
    inner = modernvbert(inner)
    for field, value in text.items():
        setattr(inner.text_config, field, value)
    for field, value in vision.items():
        setattr(inner.vision_config, field, value)
    config = ColModernVBertConfig(vlm_config=inner, embedding_dim=20)
    model = randomize(ColModernVBertForRetrieval(config), seed)
    tensors = {}
    for key, value in model.state_dict().items():
        key = key.replace("embedding_proj_layer", "model.custom_text_proj")
        key = key.replace("vlm.vision_model.", "model.vision_model.vision_model.")
        tensors[key.replace("vlm.", "model.")] = value
    fields = inner.to_dict() | dict(
        architectures=architectures, dtype="bfloat16", embedding_dim=20,
    )  # fmt: skip
    folder, processor = write(name, tensors, fields, pixels)
    model = model.float().eval()
    tower = inner.vision_config
    count = (tower.image_size // tower.patch_size // inner.pixel_shuffle_factor) ** 2
    rows_of = lambda **inputs: model(**inputs).embeddings[0]
    record(folder, "token_embed", prompts_of(processor, inner.image_token_id, count, rows_of))


def ultravbert(name, seed, fields, rename, pixels, task="token_embed", vision=None, text=None):
    """UltraVBERT. `fields` are those beside its parts, and `rename` changes the names of tensors.
    Without `connector_norm`, the norm behind the connector is left out, as in vLLM's class."""
    inner, own = models()["idefics3"]()
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=32, patch_size=8, vision_use_head=False,
    )  # fmt: skip
    text_config = UltrabertConfig(**dict(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=512, sliding_window=9, pad_token_id=0,
        bos_token_id=2, eos_token_id=3,
    ) | (text or {}))  # fmt: skip
    config = UltraVBertConfig(
        text_config=text_config, vision_config=SiglipVisionConfig(**tower | (vision or {})),
        image_token_id=inner.image_token_id, pixel_shuffle_factor=2,
    )  # fmt: skip
    model = randomize(UltraVBertModel(config), seed)
    tensors = model.state_dict()
    if not fields.get("connector_norm", True):
        model.connector.norm = torch.nn.Identity()
        del tensors["connector.norm.weight"]
    tensors = {rename(key): value for key, value in tensors.items()}
    outer = config.to_dict() | dict(architectures=None, dtype="bfloat16") | fields
    folder, processor = write(name, tensors, outer, own | pixels)
    model = model.float().eval()
    states = lambda **inputs: model(**inputs).last_hidden_state[0]
    # Vectors of texts are those of the first token.
    rows = slice(None) if task == "token_embed" else slice(1)
    rows_of = lambda **inputs: normalized(states(**inputs)[rows])
    side = config.vision_config.image_size // config.vision_config.patch_size
    count = (side // config.pixel_shuffle_factor) ** 2
    record(folder, task, prompts_of(processor, config.image_token_id, count, rows_of))


def as_saved(key):
    return key


def of_older(key):
    """The name in checkpoints of transformers 5.9 and earlier."""
    return key.replace("vision_model.", "vision_model.vision_model.", 1)


ULTRA_PIXELS = dict(image_processor_type="UltraVBertImageProcessor", max_image_tiles=4)
MAKERS = {
    # As published: the config names no class.
    "modernvbert": lambda n: of_modern_authors(n, 17, None, {}),
    "modernvbert-class": lambda n: of_modern_authors(
        n, 18, ["ModernVBertModel"], dict(layer_norm_eps=1e-3, hidden_act="gelu"),
        norm_eps=1e-3, local_attention=8,
    ),  # fmt: skip
    "colultravbert": lambda n: ultravbert(
        n, 19, dict(architectures=["ColUltraVBertForRetrieval"]), as_saved, ULTRA_PIXELS,
        text=dict(num_key_value_heads=2),
    ),  # fmt: skip
    # As vLLM reads older checkpoints: without a norm behind the connector, and with a limit of tiles
    # in the file of another class of processors, which is larger here than any image. No class is
    # named.
    "colultravbert-older": lambda n: ultravbert(
        n, 20, dict(connector_norm=False), of_older, dict(max_image_tiles=9),
        vision=dict(num_attention_heads=3, layer_norm_eps=1e-3),
        text=dict(rms_norm_eps=1e-3, layer_types=["full_attention", "sliding_attention"] * 2),
    ),  # fmt: skip
    "ultravbert": lambda n: ultravbert(
        n, 21, dict(architectures=["UltraVBertModel"]), as_saved,
        dict(image_processor_type="UltraVBertImageProcessor", max_image_tiles=2), task="embed",
        text=dict(rms_norm_eps=1e-2, attention_bias=True, mlp_bias=True),
    ),  # fmt: skip
}


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(MAKERS):
        MAKERS[name](name)
        print(name)


if __name__ == "__main__":
    main()
