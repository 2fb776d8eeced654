"""Builds the models of the tests of Qwen2.5-Omni and Qwen3-Omni and records the answers of Hugging
Face transformers.

    python tests/fidelity/make_omni.py               # all of them, into tests/fidelity/omni
    python tests/fidelity/make_omni.py qwen3_omni    # some of them

Each model is a folder with seeded random weights and the configs of its processors, plus
`golden.json`: images and sounds as the processors leave them, their embeddings, and prompts with
both: token ids, positions, and log-probabilities after the last token, in float32. `videos.json`
has the same of videos, as that of `make_vision.py`.

`qwen2_5_omni` and `qwen3_omni` are whole models, as they are published: `thinker_config` in the
config, and `thinker.` before the names of tensors. A tensor of a part that speaks is beside them.
The other folders are the thinkers alone, as transformers writes them.

The processor of Qwen3-Omni gives sizes of its own to that of videos. Those of the tests are
smaller: `kwargs` of `videos.json` has them. `transcription.json` of `qwen3_omni` has sounds, the
fields of a form, the prompt that vLLM makes of them, and the text that the model writes.

Needs: torch, torchvision, Pillow, transformers >= 5, safetensors, soundfile. Nothing is downloaded.
"""

import json
import os
import sys
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
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
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
# The same tokens of Qwen3-Omni. The tokenizer has those of a turn.
LATER_TAGS = [
    "<|audio_pad|>", "<|audio_start|>", "<|audio_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|vision_start|>", "<|vision_end|>",
]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
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


def thinker_of_experts(text, visual, audio, sections, per_second):
    sizes = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
        num_mel_bins=24, max_source_positions=50, output_dim=32, downsample_hidden_size=8,
        n_window_infer=200,
    )
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)
    fields = text_config("qwen3_omni_moe_text", tie_word_embeddings=False, **(experts | text))
    return Qwen3OmniMoeThinkerConfig(
        text_config=fields | axes(sections),
        vision_config=VISUAL | dict(num_position_embeddings=36) | visual,
        audio_config=sizes | audio, audio_token_id=AUDIO, image_token_id=IMAGE,
        video_token_id=VIDEO, audio_start_token_id=AUDIO_BOS, vision_start_token_id=VISION_BOS,
        position_id_per_seconds=per_second,
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
    "qwen3_omni": lambda: (
        thinker_of_experts(
            {}, dict(patch_size=8, deepstack_visual_indexes=[0, 2]), {}, [2, 1, 1], 13,
        ),
        dict(patch_size=8, size=dict(shortest_edge=256, longest_edge=256 * 14), **HALF), True,
    ),
    "qwen3_omni-thinker": lambda: (
        thinker_of_experts(
            dict(num_key_value_heads=1, num_experts=3, norm_topk_prob=False, mlp_only_layers=[1]),
            dict(
                patch_size=4, deepstack_visual_indexes=[1], num_heads=3,
                num_position_embeddings=16,
            ),
            dict(
                d_model=48, encoder_attention_heads=3, num_mel_bins=21, n_window_infer=100,
                downsample_hidden_size=6, activation_function="relu",
            ),
            [1, 1, 2], 25,
        ),
        dict(patch_size=4, size=dict(shortest_edge=64, longest_edge=64 * 24), **CLIP), False,
    ),
}
# Other weights, where two tokens of a prompt would be nearly equal.
SEEDS = {"qwen3_omni": 1, "qwen3_omni-thinker": 1}
# The means and deviations of pixels of published models of Qwen3-Omni.
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
# Forms of transcriptions, and their instructions.
FORMS = [
    ({}, "Transcribe this audio."),
    (dict(language="de", prompt="Ann"), "Transcribe this audio into German. Ann"),
    (dict(language="de", to_language="fr"), "Translate this audio from German into French."),
]


def is_later(config):
    return config.model_type == "qwen3_omni_moe_thinker"


def tokenizer(config):
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    tags = LATER_TAGS if is_later(config) else TAGS
    words.add_special_tokens(dict(additional_special_tokens=tags))
    assert words.convert_tokens_to_ids(tags[-1]) == VISION_EOS
    if is_later(config):
        words.chat_template = TEMPLATE
    return words


def each_sound(extractor, sounds):
    """Returns the same for Qwen3-Omni. As in vLLM, a sound does not depend on those beside it."""
    fields = dict(
        padding=True, truncation=False, return_attention_mask=True, return_tensors="pt",
    )
    each = [extractor(it, sampling_rate=RATE, **fields) for it in sounds]
    most = max(it["input_features"].shape[-1] for it in each)
    filled = lambda it: torch.nn.functional.pad(it, (0, most - it.shape[-1]))
    return dict(
        input_features=torch.cat([filled(it["input_features"]) for it in each]),
        feature_attention_mask=torch.cat([filled(it["attention_mask"]) for it in each]),
    )


def sounds_of(config, extractor, sounds):
    """Returns the model's inputs of sounds: HF `Qwen2_5OmniProcessor._process_audio`."""
    if is_later(config):
        return each_sound(extractor, sounds)
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
    assert (positions == positions.long()).all()
    positions = positions.long()
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


def states_of(output):
    """Returns the embeddings of images or videos, and the states for layers of the text model."""
    deep = getattr(output, "deepstack_features", None) or []
    output = getattr(output, "pooler_output", output)
    embeddings = output if torch.is_tensor(output) else torch.cat(list(output))
    return embeddings, [rounded(torch.cat(list(it))) for it in deep]


def image_record(model, processor, size):
    image = Image.fromarray(draw(*size))
    pixels = pixels_of(model, processor, image)[0]
    inputs = processor([image], return_tensors="pt")
    _, rows, columns = inputs["image_grid_thw"][0].tolist()
    output = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    embeddings, by_layer = states_of(output)
    merge = processor.merge_size
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), grid=[1, rows // merge, columns // merge],
        num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=by_layer,
    )


def sound_record(model, extractor, parts, count):
    inputs = sounds_of(model.config, extractor, [sound(parts, count)])
    features = model.get_audio_features(**inputs).last_hidden_state
    times = int(inputs["feature_attention_mask"].sum())
    mel = inputs["input_features"][0][:, :times]
    mels = mel.split(2 * model.config.audio_config.n_window, dim=1)
    return dict(
        parts=parts, count=count, shapes=[list(it.shape) for it in mels],
        mels=[rounded(it) for it in mels], num_embeds=len(features), embeddings=rounded(features),
    )


def video_inputs(model, processor, video):
    frames = torch.tensor(draw_video(*video[:3])).permute(0, 3, 1, 2)
    inputs = processor([frames], return_tensors="pt")
    # HF `Qwen2_5OmniProcessor` takes two frames a second, whatever the video has, and
    # `Qwen3OmniMoeProcessor` one.
    fps = 1.0 if is_later(model.config) else 2.0
    seconds = torch.tensor([processor.temporal_patch_size / fps])
    return dict(
        pixel_values_videos=inputs["pixel_values_videos"], video_grid_thw=inputs["video_grid_thw"],
        video_second_per_grid=seconds,
    )


def video_record(model, processor, video):
    processor.do_rescale = processor.do_normalize = False
    raw = video_inputs(model, processor, video)
    processor.do_rescale = processor.do_normalize = True
    inputs = video_inputs(model, processor, video)
    grid = inputs["video_grid_thw"][0].tolist()
    pixels = video_pixels(raw["pixel_values_videos"], grid, processor)[: video[0]]
    output = model.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"])
    embeddings, by_layer = states_of(output)
    frames, height, width, fps = video
    merge = processor.merge_size
    return dict(
        frames=frames, height=height, width=width, fps=fps, indices=list(range(frames)),
        shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
        grid=[grid[0], grid[1] // merge, grid[2] // merge], num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=by_layer, tokens=[VIDEO] * len(embeddings),
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
            heard = [sound(*SOUNDS[index]) for index in of_sounds]
            inputs |= sounds_of(model.config, extractor, heard)
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
        inputs = video_inputs(model, videos, video)
        prompts.append(prompt_record(model, inputs, items, images=[index]))
    size = {edge: videos.size[edge] for edge in ("shortest_edge", "longest_edge")}
    kwargs = dict(kwargs=dict(size=size)) if is_later(model.config) else {}
    golden = dict(videos=records, prompts=prompts) | kwargs
    (folder / "videos.json").write_text(json.dumps(golden) + "\n")


@torch.no_grad()
def record_transcription(folder, model, extractor, words):
    golden = []
    for parts in [["rising"], ["clicks", "noise"]]:
        inputs = sounds_of(model.config, extractor, [sound(parts, None)])
        times = int(inputs["feature_attention_mask"].sum())
        count = times // 100 * 13 + -(-(times % 100) // 8)
        for fields, instruction in FORMS:
            content = f"<|audio_start|><|audio_pad|><|audio_end|>{instruction}"
            message = dict(role="user", content=content)
            prompt = words.apply_chat_template(
                [message], tokenize=False, add_generation_prompt=True,
            )
            tokens = words.encode(prompt, add_special_tokens=False)
            at = tokens.index(AUDIO)
            tokens[at : at + 1] = [AUDIO] * count
            written = greedy(model, tokens, inputs, count=20)
            assert model.config.text_config.eos_token_id not in written
            text = words.decode(written, skip_special_tokens=True)
            answer = dict(token_ids=tokens, output=text, text=text)
            golden.append(dict(parts=parts, fields=fields) | answer)
    (folder / "transcription.json").write_text(json.dumps(golden, indent=1) + "\n")


def write_letters(model, words):
    """Makes a model write letters: other tokens are less likely than those."""
    texts = [words.decode([token]) for token in range(FIRST_TAG)]
    rest = [not (text.isascii() and text.isprintable()) for text in texts]
    head = model.lm_head.weight
    with torch.no_grad():
        head[:FIRST_TAG][torch.tensor(rest)] = 0
        head[FIRST_TAG:] = 0


def as_published(folder):
    """Makes the folder of a thinker that of a whole model."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kind = config["model_type"].removesuffix("_thinker")
    name = "Qwen2_5OmniModel" if kind == "qwen2_5_omni" else "Qwen3OmniMoeForConditionalGeneration"
    whole = dict(
        architectures=[name], model_type=kind, enable_audio_output=True,
        torch_dtype=config.pop("dtype"), talker_config=dict(model_type=f"{kind}_talker"),
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
    later = is_later(config)
    kind = Qwen2_5OmniThinkerForConditionalGeneration
    kind = Qwen3OmniMoeThinkerForConditionalGeneration if later else kind
    model = kind(config).eval()
    randomize(model, seed=sum(name.encode()) + SEEDS.get(name, 0))
    words = tokenizer(config)
    if later and is_whole:
        write_letters(model, words)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    words.save_pretrained(folder)
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
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    record(folder, model, images, videos, extractor)
    if later and is_whole:
        record_transcription(folder, model, extractor, words)
    if is_whole:
        as_published(folder)
    (folder / "model.safetensors").chmod(0o644)


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(MODELS):
        build(name, *MODELS[name]())
        print(name, flush=True)


if __name__ == "__main__":
    main()
