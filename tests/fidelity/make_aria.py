"""Builds the models of Aria for the vision tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_aria.py              # all of them, into tests/fidelity/vision
    python tests/fidelity/make_aria.py aria         # some of them

Each model is a folder as `make_vision.py` writes it. The processor makes images of 980 pixels on
the longer side, so the recorded ones are very wide or very high. They are recorded without the
black pixels around them.

Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import json
import sys

import torch
from PIL import Image
from transformers import AriaConfig, AriaImageProcessor, AutoModelForImageTextToText

from make_kimi import IMAGE
from make_vision import HERE, draw, placed_prompt, randomize, rounded, text_config, tokenizer

PROMPTS = ([], [1], [2, 0], [0, 1, 0])


def models():
    """Returns the models: the sizes of images, and the fields of the model and of its processor."""
    tower = dict(
        model_type="idefics3_vision", hidden_size=24, intermediate_size=36, num_hidden_layers=3,
        num_attention_heads=2, patch_size=28, image_size=280,
    )
    text = lambda **changes: text_config(
        "aria_text", intermediate_size=12, moe_num_experts=6, moe_topk=2, **changes
    )
    return {
        # One image is two patches high.
        "aria": (
            [(2, 200), (3, 100), (1, 300), (190, 3)],
            dict(
                text_config=text(moe_num_shared_experts=2), vision_config=tower,
                projector_patch_to_query_dict={"1225": 7},
            ),
            dict(min_image_size=4),
        ),
        # Another layer is read, and the smaller squares have fewer embeddings.
        "aria-layer": (
            [(1, 300), (2, 93), (120, 1)],
            dict(
                text_config=text(
                    moe_num_shared_experts=1, num_hidden_layers=2, attention_bias=True,
                    mlp_bias=True, head_dim=12,
                ),
                vision_config=tower | dict(
                    patch_size=35, image_size=210, num_attention_heads=3, layer_norm_eps=1e-4,
                ),
                projector_patch_to_query_dict={"196": 3, "784": 5}, vision_feature_layer=-2,
                tie_word_embeddings=True,
            ),
            dict(min_image_size=3, resample=2),
        ),
    }


@torch.no_grad()
def build(name, sizes, config, fields):
    folder = HERE / "vision" / name
    config = AriaConfig(image_token_index=IMAGE, **config)
    made = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    randomize(made, seed=sum(name.encode()))
    made.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer().save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    written = fields | dict(image_processor_type="AriaImageProcessor")
    path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AriaImageProcessor(**fields)
    raw = AriaImageProcessor(**fields, do_rescale=False, do_normalize=False)
    inputs = lambda drawn: {
        key: it for key, it in processor(drawn, return_tensors="pt").items() if key != "num_crops"
    }
    drawn = [Image.fromarray(draw(*size)) for size in sizes]
    records, all_features = [], []
    for size, image in zip(sizes, drawn):
        bare = raw([image], return_tensors="pt")
        mask = bare["pixel_mask"][0]
        height, width = int(mask[:, 0].sum()), int(mask[0].sum())
        pixels = bare["pixel_values"][0, :, :height, :width].to(torch.uint8).permute(1, 2, 0)
        layer = model.config.vision_feature_layer
        features = model.get_image_features(
            **inputs([image]), vision_feature_layer=layer, return_dict=True,
        )
        embeddings = features.pooler_output.flatten(0, -2)
        all_features.append(embeddings)
        records.append(dict(
            height=size[0], width=size[1], shape=[1, height, width, 3], grid=None, tiles=None,
            pixels=pixels.contiguous().numpy().tobytes().hex(), num_embeds=len(embeddings),
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
        features = [all_features[index] for index in chosen]
        features = torch.cat(features) if features else torch.zeros(0, 32)
        prompts.append(dict(
            token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed,
            **placed_prompt(model, torch.tensor([tokens]), IMAGE, features),
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
