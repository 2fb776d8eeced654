"""Builds models of `Phi3VForCausalLM` and records what the formulas of its authors make of them.

    python tests/fidelity/make_phi3_v.py             # all of them, into tests/fidelity/vision
    python tests/fidelity/make_phi3_v.py phi3_v      # some of them

transformers has no class of Phi-3-vision, and the code of its authors is in their folder alone. The
tower is transformers' CLIP, the text model its Phi-3, and the pixels are Pillow's. The order of the
embeddings is here once more, in torch. The authors have the sizes of the tower in their code: here,
`vision_config` has them. Each model is a folder as in `make_vision.py`.

Needs: torch, Pillow, transformers >= 5, safetensors. Nothing is downloaded.
"""

import json
import math
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
)

from corpus import train_tokenizer
from make_vision import CLIP, HERE, draw, randomize, rounded

FIRST_TAG = 440
MODULE = "model.vision_embed_tokens"
# Height and width: square, wide, high, odd, and one that shrinks.
SIZES = [(24, 24), (20, 61), (61, 20), (35, 41), (150, 90)]
PROMPTS = [[], [1], [3, 2], [4, 0, 4]]


def tokenizer():
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    words.add_special_tokens(dict(additional_special_tokens=["<|image|>"]))
    assert words.convert_tokens_to_ids("<|image|>") == FIRST_TAG
    return words


def models():
    text = dict(
        vocab_size=448, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        original_max_position_embeddings=1024, bos_token_id=None, eos_token_id=2, pad_token_id=0,
        tie_word_embeddings=False,
    )
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        image_size=24, patch_size=6,
    )
    factors = dict(short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 1.5, 2.0, 2.5])
    rope = dict(rope_type="longrope", rope_theta=10_000.0, **factors)
    return {
        "phi3_v": (text | dict(rope_parameters=rope), tower, dict(num_crops=4), -2),
        "phi3_v-wide": (
            text | dict(hidden_size=40, num_key_value_heads=4, num_hidden_layers=3),
            tower | dict(patch_size=4, num_hidden_layers=2, num_attention_heads=3),
            dict(num_crops=5, image_mean=[0.4, 0.5, 0.6], image_std=[0.3, 0.5, 0.4]), 1,
        ),
    }


def tiled(image, side, num_crops):
    """Returns an image in whole tiles: `HD_transform` of the authors' code."""
    is_high = image.width < image.height
    image = image.transpose(Image.TRANSPOSE) if is_high else image
    ratio, scale = image.width / image.height, 1
    while scale * np.ceil(scale / ratio) <= num_crops:
        scale += 1
    width = (scale - 1) * side
    height = int(width / ratio)
    # In two steps, because Pillow 13 may change the height first.
    image = image.resize((width, image.height), Image.BILINEAR)
    image = image.resize((width, height), Image.BILINEAR)
    whole = Image.new("RGB", (width, math.ceil(height / side) * side), (255, 255, 255))
    whole.paste(image, (0, (whole.height - height) // 2))
    return whole.transpose(Image.TRANSPOSE) if is_high else whole


class Model:
    def __init__(self, name):
        text, tower, processor, layer = models()[name]
        self.name, self.layer, self.side = name, layer, tower["image_size"]
        self.processor = CLIP | processor
        self.tower = CLIPVisionModel(CLIPVisionConfig(**tower, attn_implementation="eager")).eval()
        self.text = Phi3ForCausalLM(Phi3Config(**text, attn_implementation="eager")).eval()
        seed = sum(name.encode())
        randomize(self.tower, seed)
        randomize(self.text, seed + 1)
        generator = torch.Generator().manual_seed(seed + 2)
        noise = lambda *shape: torch.randn(shape, generator=generator) * 0.2
        width, outputs = 4 * tower["hidden_size"], text["hidden_size"]
        self.extra = {
            "sub_GN": noise(1, 1, 1, width), "glb_GN": noise(1, 1, width),
            "img_projection.0.weight": noise(outputs, width),
            "img_projection.0.bias": noise(outputs),
            "img_projection.2.weight": noise(outputs, outputs),
            "img_projection.2.bias": noise(outputs),
        }
        # The numbers of the files.
        round_ = lambda values: values.to(torch.bfloat16).float()
        for parameter in [*self.tower.parameters(), *self.text.parameters()]:
            parameter.data = round_(parameter.data)
        self.extra = {name: round_(values) for name, values in self.extra.items()}

    def save(self):
        folder = HERE / "vision" / self.name
        folder.mkdir(exist_ok=True)
        tensors = dict(self.text.state_dict())
        tower = "img_processor.vision_model"
        for name, values in self.tower.state_dict().items():
            name = name.removeprefix("vision_model.")
            tensors[f"{MODULE}.{tower}.{name}"] = values
        tensors |= {f"{MODULE}.{name}": values for name, values in self.extra.items()}
        tensors = {
            name: values.to(torch.bfloat16).contiguous().clone() for name, values in tensors.items()
            if not name.endswith("position_ids")
        }
        save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
        width = self.tower.config.hidden_size
        config = self.text.config.to_dict() | dict(
            architectures=["Phi3VForCausalLM"], model_type="phi3_v", dtype="bfloat16",
            auto_map=dict(AutoModelForCausalLM="modeling_phi3_v.Phi3VForCausalLM"),
            image_token_id=FIRST_TAG,
            img_processor=dict(
                image_dim_out=width, model_name="openai/clip-vit-large-patch14-336",
                name="clip_vision_model", num_img_tokens=144, layer_idx=self.layer,
            ),
            embd_layer=dict(
                embedding_cls="image", hd_transform_order="sub_glb", projection_cls="mlp",
                use_hd_transform=True, with_learnable_separator=True,
            ),
            vision_config=self.tower.config.to_dict(),
        )
        rope = config.pop("rope_parameters")
        config |= dict(rope_theta=rope["rope_theta"], rope_scaling=None)
        if rope["rope_type"] == "longrope":
            names = ("short_factor", "long_factor")
            config["rope_scaling"] = dict(type="su", **{name: rope[name] for name in names})
        write = lambda file, fields: (folder / file).write_text(
            json.dumps(fields, indent=2, sort_keys=True) + "\n"
        )
        write("config.json", config)
        write("preprocessor_config.json", self.processor | dict(
            image_processor_type="Phi3VImageProcessor", num_img_tokens=144,
        ))
        tokenizer().save_pretrained(folder)
        return folder

    def pixels(self, size):
        """Returns the tiles of an image in bytes, their grid, and all images of the tower."""
        image = Image.fromarray(draw(*size))
        whole = torch.from_numpy(np.array(tiled(image, self.side, self.processor["num_crops"])))
        rows, columns = whole.shape[0] // self.side, whole.shape[1] // self.side
        mean, std = (torch.tensor(self.processor[f"image_{name}"]) for name in ("mean", "std"))
        values = ((whole.float() / 255 - mean) / std).permute(2, 0, 1)
        small = torch.nn.functional.interpolate(
            values[None], size=(self.side, self.side), mode="bicubic"
        )
        cut = lambda it: it.reshape(-1, rows, self.side, columns, self.side).permute(1, 3, 0, 2, 4)
        tiles = cut(values).reshape(-1, 3, self.side, self.side)
        raw = cut(whole.permute(2, 0, 1)).reshape(-1, 3, self.side, self.side).permute(0, 2, 3, 1)
        return raw.contiguous(), (rows, columns), torch.cat([small, tiles])

    def embeddings(self, images, grid):
        """Returns the embeddings of an image, of which `images` has the whole and the tiles."""
        states = self.tower(images, output_hidden_states=True).hidden_states[self.layer][:, 1:]
        count, patches, width = states.shape
        half = math.isqrt(patches) // 2
        squares = states.reshape(count, half, 2, half, 2, width).permute(0, 1, 3, 2, 4, 5)
        squares = squares.reshape(count, half, half, 4 * width)
        rows, columns = grid
        tiles = squares[1:].reshape(rows, columns, half, half, -1).transpose(1, 2)
        tiles = tiles.reshape(rows * half, columns * half, -1)
        ended = lambda it: torch.cat(
            [it, self.extra["sub_GN"][0].expand(len(it), -1, -1)], dim=1
        ).flatten(0, 1)
        all_of = torch.cat([ended(tiles), self.extra["glb_GN"][0], ended(squares[0])])
        layer = lambda it, at: torch.nn.functional.linear(
            it, self.extra[f"img_projection.{at}.weight"], self.extra[f"img_projection.{at}.bias"]
        )
        return layer(torch.nn.functional.gelu(layer(all_of, 0)), 2)


def image_record(model, size):
    raw, grid, images = model.pixels(size)
    embeddings = model.embeddings(images, grid)
    return embeddings, dict(
        height=size[0], width=size[1], shape=list(raw.shape), pixels=raw.numpy().tobytes().hex(),
        grid=None, tiles=[*grid, 0], whole=rounded(images[0]), num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[], tokens=[FIRST_TAG] * len(embeddings),
    )


def prompt_record(model, records, chosen):
    generator = torch.Generator().manual_seed(len(chosen))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    for index in chosen:
        after = text(4)
        tokens += records[index][1]["tokens"] + after
        placed += [FIRST_TAG] + after
    ids = torch.tensor([tokens])
    states = model.text.model.embed_tokens(ids)
    if chosen:
        each = torch.cat([records[index][0] for index in chosen])
        states = states.index_put(torch.nonzero(ids == FIRST_TAG, as_tuple=True), each)
    greedy, first = [], None
    for _ in range(12):
        row = model.text(inputs_embeds=states, use_cache=False).logits[0, -1].log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        greedy.append(int(row.argmax()))
        after = model.text.model.embed_tokens(row.argmax()[None, None])
        states = torch.cat([states, after], dim=1)
    return dict(
        token_ids=tokens, images=list(chosen), positions=None, last_log_probs=rounded(first),
        placed_token_ids=placed, greedy_token_ids=greedy,
    )


@torch.no_grad()
def build(name):
    model = Model(name)
    folder = model.save()
    records = [image_record(model, size) for size in SIZES]
    prompts = [prompt_record(model, records, chosen) for chosen in PROMPTS]
    golden = dict(images=[record for _, record in records], prompts=prompts, texts={})
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(models()):
        build(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
