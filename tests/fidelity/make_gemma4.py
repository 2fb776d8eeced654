"""Builds the models of Gemma 4 for the vision tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_gemma4.py               # all of them, into tests/fidelity/vision
    python tests/fidelity/make_gemma4.py gemma4        # some of them

Each model is a folder as `make_vision.py` writes it, with its videos in `videos.json`.

Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import json
import sys

import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ImageProcessor,
    Gemma4Processor,
    Gemma4UnifiedAudioFeatureExtractor,
    Gemma4UnifiedConfig,
    Gemma4UnifiedImageProcessor,
    Gemma4UnifiedProcessor,
    Gemma4UnifiedVideoProcessor,
    Gemma4VideoProcessor,
    PreTrainedTokenizerFast,
)
from transformers.video_utils import VideoMetadata

import wrappers
from corpus import train_tokenizer
from make_vision import FIRST_TAG, HERE, LENGTHS, draw, draw_video, randomize, rounded
from make_vision import text_config, video_metadata

# Height and width: square, odd, very wide, tiny, and tall.
SIZES = [(56, 56), (61, 83), (2, 300), (5, 7), (120, 30)]
PROMPTS = ([], [1], [3, 2], [4, 0, 4])
# Frames, height, width, and frames a second.
VIDEOS = [(4, 60, 56, 0.05), (6, 33, 90, 7.0), (3, 70, 40, None)]
VIDEO_PROMPTS = ([1], [2, 0])
TAGS = dict(
    image_token="<|image|>", boi_token="<|image>", eoi_token="<image|>", audio_token="<|audio|>",
    boa_token="<|audio>", eoa_token="<audio|>",
)
VIDEO_TAG = "<|video|>"
# The tensors that are no parameters.
RANGES = ("input_min", "input_max", "output_min", "output_max")


def tokenizer():
    """Returns a tokenizer of the corpus with the tokens of media."""
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained), extra_special_tokens=TAGS,
    )
    words.add_special_tokens(dict(additional_special_tokens=[VIDEO_TAG]))
    return words


def gemma4(vision, text, processor, videos, kind=Gemma4Config, **rest):
    words = tokenizer()
    token = lambda name: words.convert_tokens_to_ids(TAGS[name])
    text = text_config(f"{kind.model_type}_text", **text)
    config = kind(
        text_config=text, vision_config=vision, audio_config=None,
        image_token_id=token("image_token"), boi_token_id=token("boi_token"),
        eoi_token_id=token("eoi_token"), audio_token_id=token("audio_token"),
        boa_token_id=token("boa_token"), eoa_token_index=token("eoa_token"),
        video_token_id=words.convert_tokens_to_ids(VIDEO_TAG), **rest,
    )
    sizes = dict(
        patch_size=vision["patch_size"], pooling_kernel_size=vision["pooling_kernel_size"],
        max_soft_tokens=70,
    )
    return config, sizes | processor, sizes | videos


def models():
    """Returns the models: the config, and the fields of the processors of images and videos."""
    vision = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, patch_size=2, pooling_kernel_size=3,
        position_embedding_size=216,
    )
    return {
        # As the small models: embeddings of each layer, shared keys, and ranges of projections.
        "gemma4": lambda: gemma4(
            vision | dict(use_clipped_linears=True, rms_norm_eps=1e-4),
            dict(
                num_hidden_layers=4, sliding_window=40, num_kv_shared_layers=2, head_dim=8,
                layer_types=["sliding_attention", "full_attention"] * 2, global_head_dim=16,
                vocab_size_per_layer_input=512, hidden_size_per_layer_input=6,
                use_double_wide_mlp=True, final_logit_softcapping=30.0,
            ),
            dict(do_normalize=False), dict(num_frames=3),
        ),
        # As the large models: tokens of an image attend to each other, and numbers shift and scale
        # embeddings. An image has more tokens than the window.
        "gemma4-vision": lambda: gemma4(
            vision | dict(
                standardize=True, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                patch_size=3, pooling_kernel_size=2, num_hidden_layers=2,
                position_embedding_size=140,
                rope_parameters=dict(rope_type="axial", rope_theta=30.0),
            ),
            dict(
                num_hidden_layers=3, sliding_window=50, head_dim=8, global_head_dim=12,
                layer_types=["sliding_attention"] * 2 + ["full_attention"],
                num_global_key_value_heads=1, attention_k_eq_v=True,
                hidden_size_per_layer_input=0, use_bidirectional_attention="vision",
            ),
            dict(resample=2), dict(num_frames=2, resample=2),
        ),
        # Without a tower.
        "gemma4_unified": lambda: gemma4(
            dict(
                patch_size=2, pooling_kernel_size=2, mm_embed_dim=20, output_proj_dims=20,
                mm_posemb_size=72,
            ),
            dict(
                num_hidden_layers=3, sliding_window=30, head_dim=8, global_head_dim=12,
                layer_types=["sliding_attention"] * 2 + ["full_attention"],
                num_global_key_value_heads=1, attention_k_eq_v=True,
                use_bidirectional_attention="vision",
            ),
            {}, dict(num_frames=2), kind=Gemma4UnifiedConfig,
        ),
        "gemma4_unified-causal": lambda: gemma4(
            dict(
                patch_size=1, pooling_kernel_size=3, mm_embed_dim=16, output_proj_dims=16,
                mm_posemb_size=70, rms_norm_eps=1e-3,
            ),
            dict(
                num_hidden_layers=4, sliding_window=20, num_kv_shared_layers=2, head_dim=8,
                layer_types=["sliding_attention", "full_attention"] * 2, global_head_dim=16,
                use_bidirectional_attention=None, use_double_wide_mlp=True,
                tie_word_embeddings=False,
            ),
            dict(do_normalize=True, image_mean=0.4, image_std=[0.3, 0.25, 0.2]),
            dict(num_frames=3, image_mean=0.4, image_std=[0.3, 0.25, 0.2]),
            kind=Gemma4UnifiedConfig, tie_word_embeddings=False,
        ),
    }


def is_unified(model):
    return model.config.model_type == "gemma4_unified"


def with_buffers(model, seed):
    """Sets the tensors that are no parameters, so they have an effect."""
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in model.named_buffers():
        end = name.split(".")[-1]
        if end in RANGES:
            sign = -1 if end.endswith("min") else 1
            buffer.copy_(sign * (0.3 + torch.rand((), generator=generator)))
        elif end == "std_bias":
            buffer.normal_(0.0, 0.5, generator=generator)
        elif end in ("std_scale", "layer_scalar"):
            buffer.uniform_(0.5, 1.5, generator=generator)


def whole_processor(folder, unified):
    fields = json.loads((folder / "preprocessor_config.json").read_text())
    fields.pop("image_processor_type")
    videos = json.loads((folder / "video_preprocessor_config.json").read_text())
    videos.pop("video_processor_type")
    if unified:
        return Gemma4UnifiedProcessor(
            Gemma4UnifiedAudioFeatureExtractor(), Gemma4UnifiedImageProcessor(**fields),
            tokenizer(), Gemma4UnifiedVideoProcessor(**videos),
        )
    return Gemma4Processor(
        Gemma4AudioFeatureExtractor(), Gemma4ImageProcessor(**fields), tokenizer(),
        Gemma4VideoProcessor(**videos),
    )


def bytes_of(processor, patches, positions):
    """Returns the pixels of patches that were not rescaled, `[count, height, width, 3]`."""
    unified = isinstance(processor, (Gemma4UnifiedImageProcessor, Gemma4UnifiedVideoProcessor))
    side = processor.patch_size * (processor.pooling_kernel_size if unified else 1)
    images = []
    for own, places in zip(patches, positions):
        columns, rows = (places.max(dim=0).values + 1).tolist()
        own = own[: rows * columns].to(torch.uint8).reshape(rows, columns, side, side, 3)
        images.append(own.permute(0, 2, 1, 3, 4).reshape(rows * side, columns * side, 3))
    return torch.stack(images)


def image_inputs(whole, sizes):
    """Returns the model's inputs of images, and the tokens of each."""
    drawn = [Image.fromarray(draw(*size)) for size in sizes]
    inputs = whole.image_processor(drawn, return_tensors="pt")
    texts = [whole.replace_image_token(inputs, index) for index in range(len(sizes))]
    tokens = [whole.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return {name: inputs[name] for name in ("pixel_values", "image_position_ids")}, tokens


def unscaled(processor, made):
    """Returns what `made` makes without rescaled pixels."""
    flags = processor.do_rescale, processor.do_normalize
    processor.do_rescale = processor.do_normalize = False
    raw = made()
    processor.do_rescale, processor.do_normalize = flags
    return raw


def image_record(model, whole, size):
    processor = whole.image_processor
    raw = unscaled(processor, lambda: image_inputs(whole, [size]))[0]
    pixels = bytes_of(processor, raw["pixel_values"], raw["image_position_ids"])
    inputs, tokens = image_inputs(whole, [size])
    embeddings = torch.cat(list(model.model.get_image_features(**inputs).pooler_output))
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), grid=None, tiles=None, num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[], tokens=tokens[0],
    )


def video_inputs(whole, videos):
    """Returns the model's inputs of videos, and of each its tokens and its frames."""
    arrays = [draw_video(*it[:3]).transpose(0, 3, 1, 2) for it in videos]
    inputs = whole.video_processor(
        arrays, video_metadata=[video_metadata(it[0], it[3]) for it in videos],
        return_tensors="pt", return_metadata=True,
    )
    texts = [whole.replace_video_token(inputs, index) for index in range(len(videos))]
    tokens = [whole.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    names = ("pixel_values_videos", "video_position_ids", "num_frames_per_video")
    frames = [it.frames_indices for it in inputs["video_metadata"]]
    return {name: torch.as_tensor(inputs[name]) for name in names}, tokens, frames


def video_record(model, whole, video):
    processor = whole.video_processor
    raw = unscaled(processor, lambda: video_inputs(whole, [video]))[0]
    pixels = bytes_of(processor, raw["pixel_values_videos"], raw["video_position_ids"])
    inputs, tokens, indices = video_inputs(whole, [video])
    embeddings = torch.cat(list(model.model.get_video_features(**inputs).pooler_output))
    frames, height, width, fps = video
    return dict(
        frames=frames, height=height, width=width, fps=fps, grid=None, tiles=None,
        indices=[int(index) for index in indices[0]], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[], tokens=tokens[0],
    )


def masks_of(model, kinds):
    """Returns the masks of `generate`, which are those of vLLM. The forward pass of the class without
    a tower lets images see both sides in full layers as well, if it makes its own."""
    return model.create_masks_for_generate(
        config=model.config, inputs_embeds=torch.zeros(*kinds.shape, 1), attention_mask=None,
        cache=None, position_ids=torch.arange(kinds.shape[1])[None], mm_token_type_ids=kinds,
    )


def answers(model, tokens, inputs, count=12):
    """Returns the log-probabilities after a prompt, and the likeliest tokens."""
    config, begin, first = model.config, len(tokens), None
    tokens = list(tokens)
    while len(tokens) < begin + count:
        ids = torch.tensor([tokens])
        # Tokens of an answer are no image.
        kinds = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
        kinds[:, begin:] = 0
        masks = masks_of(model, kinds)
        logits = model(
            input_ids=ids, mm_token_type_ids=kinds, attention_mask=masks, use_cache=False, **inputs,
        ).logits
        row = logits[0, -1].log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        tokens.append(int(row.argmax()))
    media = (config.image_token_id, config.video_token_id)
    assert not set(media) & set(tokens[begin:]), "a token of an answer is that of an image"
    return dict(last_log_probs=rounded(first), greedy_token_ids=tokens[begin:])


def prompt_record(model, records, chosen, token, inputs):
    """Runs a prompt of text with the items of these indices in it."""
    generator = torch.Generator().manual_seed(len(chosen))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    for index in chosen:
        after = text(4)
        tokens += records[index]["tokens"] + after
        placed += [token] + after
    return dict(
        token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed,
        **answers(model, tokens, inputs),
    )


def write(path, fields):
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def build(name, config, processor, videos):
    folder = HERE / "vision" / name
    made = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    randomize(made, seed=sum(name.encode()))
    with_buffers(made, seed=sum(name.encode()))
    made.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer().save_pretrained(folder)
    kind = "Gemma4Unified" if is_unified(made) else "Gemma4"
    write(folder / "preprocessor_config.json", processor | dict(
        image_processor_type=f"{kind}ImageProcessor",
    ))
    write(folder / "video_preprocessor_config.json", videos | dict(
        video_processor_type=f"{kind}VideoProcessor",
    ))
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = whole_processor(folder, is_unified(model))
    records = [image_record(model, whole, size) for size in SIZES]
    inputs = lambda chosen: image_inputs(whole, [SIZES[at] for at in chosen])[0] if chosen else {}
    prompts = [
        prompt_record(model, records, chosen, config.image_token_id, inputs(chosen))
        for chosen in PROMPTS
    ]
    golden = dict(images=records, prompts=prompts, texts={})
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    record_videos(model, whole, folder)
    if name in ("gemma4-vision", "gemma4_unified"):
        wrappers.with_global_heads(folder)


def record_videos(model, whole, folder):
    records = [video_record(model, whole, video) for video in VIDEOS]
    inputs = lambda chosen: video_inputs(whole, [VIDEOS[at] for at in chosen])[0]
    prompts = [
        prompt_record(model, records, chosen, model.config.video_token_id, inputs(chosen))
        for chosen in VIDEO_PROMPTS
    ]
    times = sorted({
        f"{int(at / (fps or 24.0) // 60):02d}:{int(at / (fps or 24.0) % 60):02d} "
        for frames, _, _, fps in VIDEOS for at in range(frames)
    })
    encode = lambda text: whole.tokenizer(text, add_special_tokens=False)["input_ids"]
    texts = {text: encode(text) for time in times for text in (time, f" {time}")}
    sample = whole.video_processor.sample_frames
    lengths = [
        dict(frames=frames, fps=fps, indices=[
            int(at) for at in sample(VideoMetadata(**video_metadata(frames, fps)))
        ])
        for frames, fps in LENGTHS if frames > 6
    ]
    golden = dict(videos=records, prompts=prompts, texts=texts, lengths=lengths)
    (folder / "videos.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name]())
        print(name, flush=True)


if __name__ == "__main__":
    main()
