"""Builds the models of Molmo 2 for the vision tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_molmo2.py              # all of them, into tests/fidelity/vision
    python tests/fidelity/make_molmo2.py molmo2       # some of them

Each model is a folder as `make_vision.py` writes it. One has the fields and names of published
folders, the other those of the classes of transformers.

All tokens of an image are recorded as embeddings: the processor's tokens have vectors of their own,
and those of windows have the tower's result added. In transformers, tokens of an image also attend
to those of later images of the prompt. vLLM and Playhouse let them attend to their own image, and
so do the recorded prompts of several images. Those of one image have the mask of transformers.

Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import json
import sys

import torch
from PIL import Image
from transformers import (
    Molmo2Config, Molmo2ForConditionalGeneration, Molmo2ImageProcessor, Molmo2Processor,
    Molmo2VideoProcessor, PreTrainedTokenizerFast,
)

from corpus import train_tokenizer
from make_vision import HERE, draw, randomize, rounded, text_config

# The tokens with rows in the output layer, and those of the embedding.
SCORED, VOCAB = 480, 512
# The tokens behind them, from the first one on.
MARKS = [
    "<im_start>", "<im_end>", "<im_patch>", "<im_col>", "<low_res_im_start>", "<|image|>",
    "<im_low>", "<frame_start>", "<frame_end>", "<|video|>",
]
ID = {mark: SCORED + place for place, mark in enumerate(MARKS)}
IMAGE = ID["<|image|>"]
TOKENS = dict(
    image_start_token_id=ID["<im_start>"], image_end_token_id=ID["<im_end>"],
    image_patch_id=ID["<im_patch>"], low_res_image_start_token_id=ID["<low_res_im_start>"],
    frame_start_token_id=ID["<frame_start>"], frame_end_token_id=ID["<frame_end>"],
)
# Height and width: square, odd, wide, tiny, and high.
SIZES = [(56, 56), (61, 83), (40, 197), (5, 7), (120, 30)]
PROMPTS = ([], [1], [2], [3, 4], [0, 3, 0])


def models():
    """Returns the models: the fields of the model, of its processors, and whether the folder has the
    form of published ones."""
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, head_dim=12,
    )
    adapter = dict(
        hidden_size=24, num_attention_heads=2, num_key_value_heads=2, head_dim=12,
        intermediate_size=40, text_hidden_size=32,
    )
    text = lambda **changes: {
        key: value
        for key, value in text_config(
            "molmo2_text", vocab_size=SCORED, additional_vocab_size=VOCAB - SCORED, head_dim=8,
            **changes,
        ).items()
        if key not in ("bos_token_id", "pad_token_id", "eos_token_id")
    }
    return {
        # Crops of seven patches on a side: the last windows have fewer.
        "molmo2": (
            dict(
                text_config=text(rope_parameters=dict(rope_type="default", rope_theta=1e6)),
                vision_config=tower | dict(image_size=[42, 42], patch_size=6),
                adapter_config=adapter | dict(vision_feature_layer=[2, 0]),
            ),
            dict(
                size=dict(height=42, width=42), patch_size=6, overlap_margins=[1, 1], max_crops=4,
                pooling_size=[2, 2],
            ),
            dict(use_single_crop_col_tokens=False),
            True,
        ),
        # Norms behind layers and across heads, scaled positions in one layer, biases, windows of
        # two sizes, unequal margins, shared heads, and no tokens at the ends of rows of crops.
        "molmo2-olmo": (
            dict(
                text_config=text(
                    qk_norm_type="olmo", norm_after=True, attention_bias=True,
                    rope_scaling_layers=[1],
                    rope_parameters=dict(
                        rope_type="yarn", rope_theta=1e4, factor=4.0, attention_factor=1.2,
                        original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
                    ),
                ),
                vision_config=tower | dict(
                    image_size=[25, 25], patch_size=5, num_hidden_layers=2, layer_norm_eps=1e-3,
                    hidden_act="gelu", num_key_value_heads=1,
                ),
                adapter_config=adapter | dict(
                    vision_feature_layer=[-1, -2, 0], num_attention_heads=4, num_key_value_heads=2,
                    head_dim=8, attention_bias=False, mlp_bias=True, hidden_act="gelu",
                ),
            ),
            dict(
                size=dict(height=25, width=25), patch_size=5, overlap_margins=[2, 1], max_crops=6,
                pooling_size=[3, 2], image_mean=[0.4, 0.5, 0.6], image_std=[0.3, 0.2, 0.5],
            ),
            dict(
                image_use_col_tokens=False, use_single_crop_col_tokens=True,
                use_single_crop_start_token=False,
            ),
            False,
        ),
    }


def tokenizer():
    """Returns a tokenizer of the corpus with the marks of images."""
    trained = train_tokenizer(SCORED)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained), bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
    )
    whole.add_special_tokens(dict(additional_special_tokens=MARKS))
    assert [whole.convert_tokens_to_ids(mark) for mark in MARKS] == list(ID.values())
    return whole


def as_published(folder):
    """Writes the fields of a config with the names of published ones. They count layers of the tower
    that their checkpoints lack."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    vision, adapter, text = (config.pop(f"{part}_config") for part in ("vision", "adapter", "text"))
    for own, published in [
        ("image_size", "image_default_input_size"), ("patch_size", "image_patch_size"),
        ("num_position_embeddings", "image_num_pos"),
    ]:
        vision[published] = vision.pop(own)
    count = vision["num_hidden_layers"]
    vision["num_hidden_layers"] = count + 2
    layers = adapter.pop("vision_feature_layer")
    adapter["vit_layers"] = [layer - count - 2 for layer in layers]
    adapter["pooling_attention_mask"] = True
    text["layer_norm_eps"] = text.pop("rms_norm_eps")
    text["qkv_bias"] = text.pop("attention_bias")
    text["use_qk_norm"] = True
    text["rope_theta"] = text.pop("rope_parameters")["rope_theta"]
    text["rope_scaling"] = text["rope_scaling_layers"] = None
    # Those of vision and adapter that published folders lack have their defaults.
    for part in (vision, adapter):
        part.pop("attention_bias")
    config |= dict(vit_config=vision, adapter_config=adapter, text_config=text)
    config["image_col_id"] = ID["<im_col>"]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def blocks_of(tokens):
    """Returns for each token the image that it belongs to, or -1."""
    ids = torch.tensor(tokens)
    marks = [ID[mark] for mark in MARKS if mark not in ("<|image|>", "<|video|>")]
    inside = torch.isin(ids, torch.tensor(marks))
    starts = inside & ~torch.cat([torch.tensor([False]), inside[:-1]])
    return torch.where(inside, starts.cumsum(0) - 1, -1)


def mask_of(blocks):
    """Returns the mask of tokens that see those before them, and those of their own image."""
    count = len(blocks)
    seen = torch.ones(count, count).tril().bool()
    seen |= (blocks[:, None] == blocks[None, :]) & (blocks >= 0)[:, None]
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]


def answer(model, states, blocks, count=12):
    """Returns the log-probabilities after a prompt of these states, and the likeliest tokens."""
    greedy, first = [], None
    for _ in range(count):
        hidden = model.model.language_model(
            inputs_embeds=states, attention_mask=mask_of(blocks), use_cache=False,
        ).last_hidden_state
        row = model.lm_head(hidden[0, -1]).log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        greedy.append(int(row.argmax()))
        after = model.get_input_embeddings()(row.argmax()[None, None])
        states = torch.cat([states, after], dim=1)
        blocks = torch.cat([blocks, torch.tensor([-1])])
    return dict(last_log_probs=rounded(first), greedy_token_ids=greedy), first


@torch.no_grad()
def build(name, config, images, flags, is_published):
    folder = HERE / "vision" / name
    config = Molmo2Config(**config, **TOKENS, eos_token_id=2, tie_word_embeddings=False)
    made = Molmo2ForConditionalGeneration(config)
    randomize(made, seed=sum(name.encode()))
    made.to(torch.bfloat16).save_pretrained(folder, save_original_format=is_published)
    (folder / "generation_config.json").unlink(missing_ok=True)
    words = tokenizer()
    words.save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(images | dict(
        image_processor_type="Molmo2ImageProcessor"), indent=2, sort_keys=True) + "\n")
    path = folder / "processor_config.json"
    path.write_text(json.dumps(flags | dict(
        processor_class="Molmo2Processor"), indent=2, sort_keys=True) + "\n")
    if is_published:
        as_published(folder)
    load = Molmo2ForConditionalGeneration.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = Molmo2ImageProcessor(**images)
    raw = Molmo2ImageProcessor(**images | dict(do_rescale=False, do_normalize=False))
    whole = Molmo2Processor(processor, Molmo2VideoProcessor(), words, **flags)
    side, patch = images["size"]["height"], images["patch_size"]
    drawn = [Image.fromarray(draw(*size)) for size in SIZES]
    records, states = [], []
    for size, image in zip(SIZES, drawn):
        inputs = processor([image], return_tensors="pt")
        # [crops, patches, pixels] becomes [crops, height, width, 3].
        bytes_of = raw([image], return_tensors="pt")["pixel_values"].to(torch.uint8)
        on_side = side // patch
        pixels = bytes_of.reshape(-1, on_side, on_side, patch, patch, 3).transpose(2, 3)
        pixels = pixels.reshape(-1, side, side, 3).contiguous()
        text = whole.replace_image_token(inputs, 0)
        tokens = words(text, add_special_tokens=False)["input_ids"]
        features = model.get_image_features(
            inputs["pixel_values"], inputs["image_token_pooling"], inputs["image_grids"],
        ).pooler_output[0]
        ids = torch.tensor(tokens)
        embeddings = model.get_input_embeddings()(ids)
        embeddings[ids == ID["<im_patch>"]] += features
        margin = sum(images["overlap_margins"])
        window = on_side - margin
        grid = crops_of(processor, image, window * patch, margin * patch, images["max_crops"])
        assert 1 + grid[0] * grid[1] == len(pixels)
        states.append(embeddings)
        records.append(dict(
            height=size[0], width=size[1], shape=list(pixels.shape), grid=None, tiles=[*grid, 0],
            pixels=pixels.numpy().tobytes().hex(), num_embeds=len(tokens),
            embeddings=rounded(embeddings), by_layer=[], tokens=tokens,
        ))
    prompts = []
    for chosen in PROMPTS:
        generator = torch.Generator().manual_seed(len(chosen))
        draw_words = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens, placed, rows = [words.bos_token_id], [], []
        if not chosen:
            placed.append(words.bos_token_id)
        place = lambda ids: rows.append(model.get_input_embeddings()(torch.tensor(ids)))
        place(tokens)
        before = draw_words(3)
        place(before)
        tokens += before
        placed += before
        for index in chosen:
            after = draw_words(4)
            tokens += records[index]["tokens"] + after
            placed += [IMAGE] + after
            rows.append(states[index])
            place(after)
        inputs = torch.cat(rows)[None]
        found, first = answer(model, inputs, blocks_of(tokens))
        if len(chosen) < 2:
            check_whole(model, whole, words, [drawn[at] for at in chosen], tokens, first)
        prompts.append(dict(
            token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed, **found,
        ))
    texts = [*MARKS, words.bos_token]
    encode = lambda text: words(text, add_special_tokens=False)["input_ids"]
    golden = dict(images=records, prompts=prompts, texts={text: encode(text) for text in texts})
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def crops_of(processor, image, step, margin, most):
    """Returns the rows and columns of an image's crops."""
    from transformers.models.molmo2.image_processing_molmo2 import select_tiling

    return select_tiling(image.height - margin, image.width - margin, step, most)


def check_whole(model, whole, words, images, tokens, expected):
    """Compares a prompt with what the model's own forward pass makes of its tokens and images."""
    ids = torch.tensor([tokens])
    inputs = whole.image_processor(images, return_tensors="pt") if images else {}
    kinds = (blocks_of(tokens) >= 0).long()[None]
    inputs = {key: inputs[key] for key in inputs if key != "image_num_crops"}
    row = model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **inputs).logits[0, -1]
    difference = (row.log_softmax(-1) - expected).abs().max()
    assert difference < 1e-4, f"another forward pass differs by {difference}"


def main():
    torch.set_num_threads(1)
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name])
        print(name, flush=True)


if __name__ == "__main__":
    main()
