"""Builds the models of the tests of Qwen2.5-Omni and records Hugging Face transformers' answers.

    python tests/fidelity/make_omni.py    # into tests/fidelity/omni

Each model is a folder with seeded random weights and the configs of its processors, plus
`golden.json`: images and sounds as the processors leave them, their embeddings, and prompts with
both: token ids, positions, and log-probabilities after the last token, in float32. `videos.json`
has the same of videos, as that of `make_vision.py`.

`qwen2_5_omni` is the whole model, as it is published: `thinker_config` in the config, and `thinker.`
before the names of tensors. A tensor of a part that speaks is beside them. The other folder is the
thinker alone, as transformers writes it.

Needs: torch, torchvision, Pillow, transformers >= 5, safetensors, soundfile. Nothing is downloaded.
"""

import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    WhisperFeatureExtractor,
)

from corpus import train_tokenizer
from make_hearing import RATE, sound
from make_vision import (
    CLIP,
    VISUAL,
    axes,
    draw,
    draw_video,
    pixels_of,
    randomize,
    rounded,
    text_config,
    video_pixels,
)

OUT = Path(__file__).parent / "omni"
# The ids follow each other from `FIRST_TAG` on.
FIRST_TAG = 440
TAGS = [
    "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|IMAGE|>", "<|VIDEO|>", "<|vision_bos|>",
    "<|vision_eos|>",
]
AUDIO, AUDIO_BOS, AUDIO_EOS, IMAGE, VIDEO, VISION_BOS, VISION_EOS = range(FIRST_TAG, FIRST_TAG + 7)
# Sounds of speech/, one after the other, and the samples of them that are taken. The extractors
# take two seconds.
SOUNDS = [
    (["rising"], 16_000),
    (["clicks", "noise"], 15_041),
    (["rising"], 700),
    (["noise", "rising", "clicks"], 33_000),
]
SIZES = [(56, 56), (61, 83), (30, 120)]
# Frames, height, width, and frames a second.
VIDEOS = [(4, 60, 56, 10.0), (6, 33, 90, 7.0)]
# The images of a prompt, and then its sounds.
PROMPTS = [([], []), ([], [2]), ([1], []), ([0, 2], [1]), ([1], [0, 3])]


def thinker(text, visual, audio, sections):
    sizes = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
        num_mel_bins=32, max_source_positions=50, n_window=20, output_dim=32,
    )
    return Qwen2_5OmniThinkerConfig(
        text_config=text_config("qwen2_5_omni_text", tie_word_embeddings=False, **text)
        | axes(sections),
        vision_config=VISUAL | dict(patch_size=14) | visual, audio_config=sizes | audio,
        audio_token_index=AUDIO, image_token_index=IMAGE, video_token_index=VIDEO,
        audio_start_token_id=AUDIO_BOS, audio_end_token_id=AUDIO_EOS,
        vision_start_token_id=VISION_BOS, vision_end_token_id=VISION_EOS,
    )


# The config, the fields of the image processor, and whether the folder is that of the whole model.
MODELS = {
    "qwen2_5_omni": lambda: (
        thinker({}, dict(window_size=56, fullatt_block_indexes=[1]), {}, [1, 1, 2]),
        dict(patch_size=14, min_pixels=784, max_pixels=28 * 28 * 12, **CLIP), True,
    ),
    "qwen2_5_omni-thinker": lambda: (
        thinker(
            dict(num_key_value_heads=1),
            dict(window_size=24, fullatt_block_indexes=[0, 2], patch_size=4, num_heads=3),
            dict(
                d_model=48, encoder_attention_heads=3, encoder_layers=3, num_mel_bins=24,
                n_window=32, activation_function="relu",
            ),
            [2, 1, 1],
        ),
        dict(patch_size=4, size=dict(shortest_edge=64, longest_edge=64 * 40), **CLIP), False,
    ),
}


def tokenizer():
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    words.add_special_tokens(dict(additional_special_tokens=TAGS))
    assert words.convert_tokens_to_ids(TAGS[-1]) == VISION_EOS
    return words


def sounds_of(extractor, sounds):
    """Returns the model's inputs of sounds: HF `Qwen2_5OmniProcessor._process_audio`."""
    inputs = extractor(
        sounds, sampling_rate=RATE, padding="max_length", return_attention_mask=True,
        return_tensors="pt",
    )
    return dict(
        input_features=inputs["input_features"], feature_attention_mask=inputs["attention_mask"],
    )


def log_probs(model, tokens, inputs):
    """Returns the log-probabilities after a prompt, and the positions of its tokens."""
    ids = torch.tensor([tokens])
    mask = torch.ones_like(ids)
    lens = inputs.get("feature_attention_mask")
    positions, _ = model.model.get_rope_index(
        ids, inputs.get("image_grid_thw"), inputs.get("video_grid_thw"), mask,
        audio_seqlens=None if lens is None else lens.sum(-1),
        second_per_grids=inputs.get("video_second_per_grid"),
    )
    # Those of a prompt without images have three equal axes.
    positions = positions if positions.ndim == 3 else positions[None].expand(3, -1, -1)
    logits = model(
        input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, **inputs
    ).logits[0]
    return logits[-1].log_softmax(-1), positions[:, 0].T.tolist()


def greedy(model, tokens, inputs, count=12):
    """Returns the likeliest tokens after a prompt."""
    tokens = list(tokens)
    for _ in range(count):
        row, _ = log_probs(model, tokens, inputs)
        first, second = row.topk(2).values.tolist()
        assert first - second > 1e-3, "two tokens are nearly equal"
        tokens.append(int(row.argmax()))
    return tokens[-count:]


def prompt_record(model, inputs, items, **fields):
    """Runs a prompt of text with items in it: the mark before, the token, their number, the mark
    behind."""
    generator = torch.Generator().manual_seed(len(items))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    for before, token, count, behind in items:
        after = text(4)
        tokens += [before] + [token] * count + [behind] + after
        placed += [before, token, behind] + after
    last, positions = log_probs(model, tokens, inputs)
    return dict(
        token_ids=tokens, positions=positions, last_log_probs=rounded(last),
        placed_token_ids=placed, greedy_token_ids=greedy(model, tokens, inputs), **fields,
    )


def image_record(model, processor, size):
    image = Image.fromarray(draw(*size))
    pixels = pixels_of(model, processor, image)[0]
    inputs = processor([image], return_tensors="pt")
    _, rows, columns = inputs["image_grid_thw"][0].tolist()
    output = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    output = getattr(output, "pooler_output", output)
    embeddings = output if torch.is_tensor(output) else torch.cat(list(output))
    merge = processor.merge_size
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), grid=[1, rows // merge, columns // merge],
        num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
    )


def sound_record(model, extractor, parts, count):
    inputs = sounds_of(extractor, [sound(parts, count)])
    features = model.get_audio_features(**inputs).last_hidden_state
    times = int(inputs["feature_attention_mask"].sum())
    mel = inputs["input_features"][0][:, :times]
    mels = mel.split(2 * model.config.audio_config.n_window, dim=1)
    return dict(
        parts=parts, count=count, shapes=[list(it.shape) for it in mels],
        mels=[rounded(it) for it in mels], num_embeds=len(features), embeddings=rounded(features),
    )


def video_inputs(processor, video):
    inputs = processor([torch.tensor(draw_video(*video[:3])).permute(0, 3, 1, 2)], return_tensors="pt")
    # HF `Qwen2_5OmniProcessor` takes two frames a second, whatever the video has.
    seconds = torch.tensor([processor.temporal_patch_size / 2.0])
    return dict(
        pixel_values_videos=inputs["pixel_values_videos"], video_grid_thw=inputs["video_grid_thw"],
        video_second_per_grid=seconds,
    )


def video_record(model, processor, video):
    processor.do_rescale = processor.do_normalize = False
    raw = video_inputs(processor, video)
    processor.do_rescale = processor.do_normalize = True
    inputs = video_inputs(processor, video)
    grid = inputs["video_grid_thw"][0].tolist()
    pixels = video_pixels(raw["pixel_values_videos"], grid, processor)[: video[0]]
    output = model.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"])
    output = getattr(output, "pooler_output", output)
    embeddings = output if torch.is_tensor(output) else torch.cat(list(output))
    frames, height, width, fps = video
    merge = processor.merge_size
    return dict(
        frames=frames, height=height, width=width, fps=fps, indices=list(range(frames)),
        shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
        grid=[grid[0], grid[1] // merge, grid[2] // merge], num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[], tokens=[VIDEO] * len(embeddings),
    )


@torch.no_grad()
def record(folder, model, images, videos, extractor):
    image_records = [image_record(model, images, size) for size in SIZES]
    sound_records = [sound_record(model, extractor, *it) for it in SOUNDS]
    prompts = []
    for of_images, of_sounds in PROMPTS:
        inputs, items = {}, []
        if of_images:
            drawn = [Image.fromarray(draw(*SIZES[index])) for index in of_images]
            inputs |= dict(images(drawn, return_tensors="pt"))
        if of_sounds:
            inputs |= sounds_of(extractor, [sound(*SOUNDS[index]) for index in of_sounds])
        for index in of_images:
            items.append((VISION_BOS, IMAGE, image_records[index]["num_embeds"], VISION_EOS))
        for index in of_sounds:
            items.append((AUDIO_BOS, AUDIO, sound_records[index]["num_embeds"], AUDIO_EOS))
        prompts.append(prompt_record(model, inputs, items, images=of_images, sounds=of_sounds))
    golden = dict(images=image_records, sounds=sound_records, prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    records = [video_record(model, videos, video) for video in VIDEOS]
    prompts = []
    for index, video in enumerate(VIDEOS):
        items = [(VISION_BOS, VIDEO, records[index]["num_embeds"], VISION_EOS)]
        prompts.append(prompt_record(model, video_inputs(videos, video), items, images=[index]))
    (folder / "videos.json").write_text(json.dumps(dict(videos=records, prompts=prompts)) + "\n")


def as_published(folder):
    """Makes the folder of a thinker that of a whole model."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    whole = dict(
        architectures=["Qwen2_5OmniModel"], model_type="qwen2_5_omni", enable_audio_output=True,
        torch_dtype=config.pop("dtype"), talker_config=dict(model_type="qwen2_5_omni_talker"),
        thinker_config=config,
    )
    path.write_text(json.dumps(whole, indent=2) + "\n")
    path = folder / "model.safetensors"
    tensors = {f"thinker.{name}": tensor for name, tensor in load_file(path).items()}
    tensors["talker.codec_head.weight"] = torch.ones(4, 4, dtype=torch.bfloat16)
    save_file(tensors, path, metadata=dict(format="pt"))


def build(name, config, fields, is_whole):
    folder = OUT / name
    config._attn_implementation = "eager"
    model = Qwen2_5OmniThinkerForConditionalGeneration(config).eval()
    randomize(model, seed=sum(name.encode()))
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer().save_pretrained(folder)
    fields = dict(merge_size=2, temporal_patch_size=2) | fields
    images = Qwen2VLImageProcessor(**fields)
    videos = Qwen2VLVideoProcessor(**fields)
    extractor = WhisperFeatureExtractor(
        feature_size=config.audio_config.num_mel_bins, chunk_length=2,
    )
    # Published folders have both in one file, and transformers 5 writes one object for each.
    of_images = dict(image_processor_type="Qwen2VLImageProcessor") | fields
    of_sounds = extractor.to_dict()
    path = folder / ("preprocessor_config.json" if is_whole else "processor_config.json")
    both = of_images | of_sounds if is_whole else dict(
        image_processor=of_images, feature_extractor=of_sounds,
    )
    path.write_text(json.dumps(both, indent=2) + "\n")
    model = Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager",
    ).eval()
    record(folder, model, images, videos, extractor)
    if is_whole:
        as_published(folder)


def main():
    torch.set_num_threads(1)
    for name, model in MODELS.items():
        build(name, *model())
        print(name, flush=True)


if __name__ == "__main__":
    main()
