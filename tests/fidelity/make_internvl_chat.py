"""Builds models of `InternVLChatModel` and records what transformers and Pillow make of them.

    python tests/fidelity/make_internvl_chat.py              # all, into tests/fidelity/vision
    python tests/fidelity/make_internvl_chat.py internvl_chat

Each model is a small one of HF `InternVLForConditionalGeneration`. Its folder has the form of the
authors' code: the mapping of transformers' `convert_internvl_weights_to_hf.py`, backwards. The
answers are those of the HF model. The grid of an image is that of HF `get_optimal_tiled_canvas`.
Its tiles are those of Pillow, as in `dynamic_preprocess` of the authors and of vLLM. Pillow up to
12 resizes the width first, then the height. Later ones choose, so each is a call of its own.

Needs: torch, torchvision, transformers >= 5, safetensors, Pillow. Nothing is downloaded.
"""

import json
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, InternVLConfig, PreTrainedTokenizerFast
from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

import make_vision
from make_vision import FIRST_TAG, HERE, SIZES, draw, features_of, greedy_tokens, inputs_of
from make_vision import prompt_record, randomize, rounded, text_config
from corpus import train_tokenizer

IMAGENET = dict(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
# The names of transformers, and those of the authors.
VISION = [
    ("model.vision_tower.", "vision_model."),
    (".layer.", ".layers."),
    ("cls_token", "class_embedding"),
    ("position_embeddings", "position_embedding"),
    ("patch_embeddings.projection", "patch_embedding"),
    ("lambda_", "ls"),
    ("attention.projection_layer", "attn.proj"),
    ("attention.", "attn."),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
]
PROJECTOR = [
    ("model.multi_modal_projector.layer_norm", "mlp1.0"),
    ("model.multi_modal_projector.linear_1", "mlp1.1"),
    ("model.multi_modal_projector.linear_2", "mlp1.3"),
]
INTERNLM2 = [
    ("embed_tokens", "tok_embeddings"),
    ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.down_proj", "feed_forward.w2"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("lm_head", "output"),
]
TAGS = ["<img>", "</img>", "<IMG_CONTEXT>"]


def tokenizer():
    """Returns a tokenizer of the corpus with the tokens of the authors."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    whole.add_special_tokens(dict(additional_special_tokens=TAGS))
    return whole


CONTEXT = tokenizer().convert_tokens_to_ids("<IMG_CONTEXT>")


class Tiles:
    """The processor of images: tiles of Pillow."""

    def __init__(self, side, least, most, thumbnail):
        self.side, self.limits, self.thumbnail = side, (least, most), thumbnail

    def resized(self, image, width, height):
        """Returns the image in another size: first its width, then its height."""
        return image.resize((width, image.height)).resize((width, height))

    def tiles(self, image):
        side = self.side
        columns, rows = get_optimal_tiled_canvas(
            (image.height, image.width), (side, side), *self.limits
        )
        whole = self.resized(image, columns * side, rows * side)
        boxes = [(column * side, row * side) for row in range(rows) for column in range(columns)]
        tiles = [whole.crop((x, y, x + side, y + side)) for x, y in boxes]
        if self.thumbnail and len(tiles) > 1:
            tiles.append(self.resized(image, side, side))
        return np.stack([np.asarray(tile) for tile in tiles])

    def __call__(self, images, **_):
        tiles = torch.tensor(np.concatenate([self.tiles(image) for image in images]))
        mean, std = (torch.tensor(IMAGENET[name]) for name in ("mean", "std"))
        return dict(pixel_values=((tiles / 255 - mean) / std).permute(0, 3, 1, 2).contiguous())


def tower(**changes):
    """Returns `vision_config` of the authors."""
    return dict(
        architectures=["InternVisionModel"], model_type="intern_vit_6b", attention_dropout=0.0,
        drop_path_rate=0.0, dropout=0.0, hidden_act="gelu", hidden_size=24, image_size=32,
        initializer_factor=1.0, initializer_range=0.02, intermediate_size=36, layer_norm_eps=1e-6,
        norm_type="layer_norm", num_attention_heads=2, num_channels=3, num_hidden_layers=2,
        patch_size=8, qk_normalization=False, qkv_bias=True, use_flash_attn=True,
    ) | changes


def models():
    """Returns the models: a text model, the authors' tower, and fields beside them."""
    tiles = dict(
        dynamic_image_size=True, min_dynamic_patch=1, max_dynamic_patch=6, use_thumbnail=True,
        downsample_ratio=0.5, select_layer=-1, template="internvl2_5",
    )
    return {
        "internvl_chat": (text_config("qwen2"), tower(), tiles),
        # The tower of 6B parameters has these norms.
        "internvl_chat-internlm2": (
            text_config("llama"),
            tower(norm_type="rms_norm", qk_normalization=True, qkv_bias=False, num_hidden_layers=3,
                  patch_size=4),
            tiles | dict(
                use_thumbnail=False, min_dynamic_patch=2, max_dynamic_patch=4,
                downsample_ratio=0.25, select_layer=-2, template="internlm2-chat",
            ),
        ),
        "internvl_chat-phi3": (
            text_config("phi3"), tower(num_attention_heads=3),
            tiles | dict(dynamic_image_size=False, template="phi3-chat"),
        ),
    }


def hf_config(text, vision, fields):
    """Returns the config of the HF model, as the script of transformers makes it."""
    renamed = dict(qkv_bias="attention_bias", qk_normalization="use_qk_norm")
    unread = ("architectures", "model_type", "use_flash_attn", "drop_path_rate", "dropout")
    vision = {renamed.get(name, name): it for name, it in vision.items() if name not in unread}
    return InternVLConfig(
        text_config=text, vision_config=vision, image_token_id=CONTEXT,
        downsample_ratio=fields["downsample_ratio"], vision_feature_layer=fields["select_layer"],
        tie_word_embeddings=False,
    )


def authors_config(name, text, vision, fields):
    """Returns `config.json` of the authors."""
    classes = dict(llama="InternLM2ForCausalLM", qwen2="Qwen2ForCausalLM", phi3="Phi3ForCausalLM")
    llm = dict(text, architectures=[classes[text["model_type"]]], rope_theta=10_000.0)
    llm |= dict(hidden_act="silu", tie_word_embeddings=False, torch_dtype="bfloat16")
    if text["model_type"] == "llama":
        code = "modeling_internlm2.InternLM2ForCausalLM"
        llm |= dict(model_type="internlm2", bias=False, auto_map=dict(AutoModelForCausalLM=code))
    return dict(
        architectures=["InternVLChatModel"], model_type="internvl_chat",
        auto_map=dict(AutoModel="modeling_internvl_chat.InternVLChatModel"),
        force_image_size=vision["image_size"], llm_config=llm, vision_config=vision,
        pad2square=False, ps_version="v2", torch_dtype="bfloat16", use_backbone_lora=0,
        use_llm_lora=0, transformers_version=None, **fields,
    )


def renamed(name, pairs):
    for old, new in pairs:
        name = name.replace(old, new)
    return name


def authors_weights(model, is_internlm2):
    """Returns the tensors of the authors: one of queries, keys and values in each layer."""
    stored, joined = model.state_dict(), {}
    text = model.config.text_config
    for name, tensor in stored.items():
        if name.startswith("model.vision_tower."):
            name = renamed(name, VISION)
            for part in ("q_proj", "k_proj", "v_proj"):
                if f".{part}." in name:
                    joined.setdefault(name.replace(part, "qkv"), []).append(tensor)
                    break
            else:
                joined[name] = tensor
        elif name.startswith("model.multi_modal_projector."):
            joined[renamed(name, PROJECTOR)] = tensor
        else:
            name = name.replace("model.language_model.", "model.")
            if is_internlm2 and any(f".{part}_proj." in name for part in "qkv"):
                pairs = [(f"self_attn.{part}_proj", "attention.wqkv") for part in "qkv"]
                wqkv = renamed(name, pairs)
                joined.setdefault("language_model." + wqkv, []).append(tensor)
            else:
                name = renamed(name, INTERNLM2) if is_internlm2 else name
                joined["language_model." + name] = tensor
    groups = text.num_attention_heads // text.num_key_value_heads
    for name, parts in joined.items():
        if isinstance(parts, list) and "wqkv" in name:
            heads = [part.unflatten(0, (text.num_key_value_heads, -1)) for part in parts]
            assert heads[0].shape[1] == groups * heads[1].shape[1]
            joined[name] = torch.cat(heads, dim=1).flatten(0, 1)
        elif isinstance(parts, list):
            joined[name] = torch.cat(parts)
    return {name: tensor.contiguous() for name, tensor in joined.items()}


def image_record(model, processor, size):
    """Returns an image as Pillow leaves it, and its embeddings."""
    image = Image.fromarray(draw(*size))
    pixels = processor.tiles(image)
    embeddings, _ = features_of(model, inputs_of(model, processor, [image]))
    words = tokenizer()
    text = "<img>" + "<IMG_CONTEXT>" * len(embeddings) + "</img>"
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape), pixels=pixels.tobytes().hex(),
        grid=None, tiles=None, num_embeds=len(embeddings), embeddings=rounded(embeddings),
        by_layer=[], tokens=words(text, add_special_tokens=False)["input_ids"],
    )


def with_greedy(model, processor, images, record):
    """Returns a prompt with its form before expansion, and the likeliest tokens after it."""
    placed, rest = [], record["token_ids"]
    for index in record["images"]:
        tokens = images[index]["tokens"]
        at = rest.index(tokens[0])
        assert rest[at : at + len(tokens)] == tokens
        placed += rest[:at] + [CONTEXT]
        rest = rest[at + len(tokens) :]
    drawn = [Image.fromarray(draw(*SIZES[index])) for index in record["images"]]
    inputs = inputs_of(model, processor, drawn) if drawn else {}
    greedy = greedy_tokens(model, torch.tensor([record["token_ids"]]), inputs)
    return record | dict(placed_token_ids=placed + rest, greedy_token_ids=greedy)


@torch.no_grad()
def build(name, text, vision, fields):
    folder = HERE / "vision" / name
    folder.mkdir(exist_ok=True)
    config = hf_config(text, vision, fields)
    model = AutoModelForImageTextToText.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    )
    randomize(model, seed=sum(name.encode()))
    # The frequencies of rotations are no parameters, and stay whole.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
    weights = authors_weights(model, text["model_type"] == "llama")
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata=dict(format="pt"))
    whole = json.dumps(authors_config(name, text, vision, fields), indent=2, sort_keys=True)
    (folder / "config.json").write_text(whole + "\n")
    words = tokenizer()
    words.save_pretrained(folder)
    model.eval()
    limits = (fields["min_dynamic_patch"], fields["max_dynamic_patch"])
    limits = limits if fields["dynamic_image_size"] else (1, 1)
    processor = Tiles(vision["image_size"], *limits, fields["use_thumbnail"])
    images = [image_record(model, processor, size) for size in SIZES]
    prompts = [prompt_record(model, processor, images, it) for it in ([], [1], [3, 2], [4, 0, 4])]
    prompts = [with_greedy(model, processor, images, prompt) for prompt in prompts]
    encode = lambda text: words(text, add_special_tokens=False)["input_ids"]
    golden = dict(images=images, prompts=prompts, texts={text: encode(text) for text in TAGS})
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    make_vision.sizes_of = lambda _: SIZES
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name])
        print(name, flush=True)


if __name__ == "__main__":
    main()
