"""Builds the models of the hearing tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_hearing.py              # all of them, into tests/fidelity/hearing
    python tests/fidelity/make_hearing.py voxtral      # some of them

Each model is a folder with seeded random weights and the config of its feature extractor, plus
`golden.json`: sounds, their spectrograms, their embeddings, and prompts with sounds: token ids, and
log-probabilities after the last token, in float32. The sounds are made of those of
`tests/fidelity/speech`. `qwen3_asr-published` has the names of published models: `thinker_config`
in the config, and `thinker.` before the names of tensors.

Needs: torch, transformers >= 5, safetensors, soundfile. Nothing is downloaded.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import soundfile
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AudioFlamingo3Config,
    AudioFlamingo3ForConditionalGeneration,
    AudioFlamingo3Processor,
    GlmAsrConfig,
    GlmAsrForConditionalGeneration,
    GlmAsrProcessor,
    MusicFlamingoConfig,
    MusicFlamingoForConditionalGeneration,
    MusicFlamingoProcessor,
    PreTrainedTokenizerFast,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    VoxtralConfig,
    VoxtralForConditionalGeneration,
    VoxtralProcessor,
    WhisperFeatureExtractor,
)

from corpus import train_tokenizer
from make_vision import greedy_tokens, randomize, rounded, text_config

HERE = Path(__file__).parent
RATE = 16_000
# Sounds of speech/, one after the other, and the samples of them that are taken.
SOUNDS = [
    (["rising"], 16_000),
    (["noise"], 8_000),
    (["clicks", "noise"], 15_321),
    (["rising"], 700),
    (["noise", "rising", "clicks"], 33_000),
]
PROMPTS = [[], [1], [3, 0], [4, 2, 4]]
TOKENS = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
FIRST_TAG = 440
# Other weights, where a model would write the token of a sound.
SEEDS = {"qwen3_asr-published": 1}
# Samples from one window to the next, in the models of GLM-ASR.
GLM_HOP = 200


def sound(parts, count):
    read = lambda name: soundfile.read(HERE / "speech" / f"{name}.wav", dtype="float32")[0]
    return np.concatenate([read(name) for name in parts])[:count]


def tokenizer():
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    words.add_special_tokens(dict(additional_special_tokens=TOKENS))
    return words


def qwen2_audio(text, **tower):
    fields = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
        num_mel_bins=80, max_source_positions=50,
    )
    return Qwen2AudioForConditionalGeneration, Qwen2AudioConfig(
        text_config=text_config("qwen2", **text), audio_config=fields | tower,
        audio_token_index=FIRST_TAG,
    )


def voxtral(text, act, **tower):
    fields = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        num_mel_bins=80, max_source_positions=50,
    )
    return VoxtralForConditionalGeneration, VoxtralConfig(
        text_config=text_config("llama", **text), audio_config=fields | tower,
        audio_token_id=FIRST_TAG, projector_hidden_act=act,
    )


def audio_flamingo_3(text, fields, **tower):
    sizes = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        num_mel_bins=16, max_source_positions=50,
    )
    return AudioFlamingo3ForConditionalGeneration, AudioFlamingo3Config(
        text_config=text_config("qwen2", **text), audio_config=sizes | tower,
        audio_token_id=FIRST_TAG, **fields,
    )


def music_flamingo(text, fields, **tower):
    sizes = dict(
        model_type="audioflamingo3_encoder", hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=48, num_mel_bins=16, max_source_positions=50,
    )
    return MusicFlamingoForConditionalGeneration, MusicFlamingoConfig(
        text_config=text_config("qwen2", **text), audio_config=sizes | tower,
        audio_token_id=FIRST_TAG, audio_bos_token_id=FIRST_TAG + 1,
        audio_eos_token_id=FIRST_TAG + 2, **fields,
    )


def glm_asr(text, act, **tower):
    # A multiple of four frames: windows are GLM_HOP apart.
    sizes = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        num_mel_bins=24, max_position_embeddings=40,
    )
    tied = dict(tie_word_embeddings=text.get("tie_word_embeddings", False))
    return GlmAsrForConditionalGeneration, GlmAsrConfig(
        text_config=text_config("llama", **text), audio_config=sizes | tower,
        audio_token_id=FIRST_TAG, projector_hidden_act=act, **tied,
    )


def qwen3_asr(text, **tower):
    sizes = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
        num_mel_bins=24, output_dim=text.get("hidden_size", 32), downsample_hidden_size=12,
        n_window_infer=200,
    )
    tied = dict(tie_word_embeddings=text.get("tie_word_embeddings", False))
    return Qwen3ASRForConditionalGeneration, Qwen3ASRConfig(
        text_config=text_config("qwen3", **text), audio_config=sizes | tower,
        audio_token_id=FIRST_TAG, eos_token_id=2, pad_token_id=0, **tied,
    )


def models():
    return {
        "qwen2_audio": lambda: qwen2_audio({}),
        "qwen2_audio-wide": lambda: qwen2_audio(
            dict(hidden_size=48, num_key_value_heads=1), num_mel_bins=128, d_model=48,
            encoder_attention_heads=3, encoder_layers=3, activation_function="relu",
        ),
        "voxtral": lambda: voxtral(dict(head_dim=8), "gelu"),
        "voxtral-wide": lambda: voxtral(
            dict(head_dim=12, num_key_value_heads=1), "silu", intermediate_size=160,
            num_mel_bins=128, num_attention_heads=4,
        ),
        "audio_flamingo_3": lambda: audio_flamingo_3({}, {}),
        "audio_flamingo_3-wide": lambda: audio_flamingo_3(
            dict(hidden_size=48, num_key_value_heads=1),
            dict(projector_bias=False, projector_hidden_act="relu"), num_mel_bins=24,
            hidden_size=48, num_attention_heads=3, num_hidden_layers=3,
            activation_function="gelu_new",
        ),
        "music_flamingo": lambda: music_flamingo({}, {}),
        "music_flamingo-wide": lambda: music_flamingo(
            dict(hidden_size=48, num_key_value_heads=1),
            dict(
                projector_bias=False, projector_hidden_act="relu", audio_frame_step=0.02,
                rope_parameters=dict(
                    rope_type="default", rope_theta=90.0, partial_rotary_factor=0.5,
                ),
            ),
            num_mel_bins=24, hidden_size=24, num_attention_heads=3, num_hidden_layers=1,
        ),
        "glm_asr": lambda: glm_asr(dict(head_dim=8), "gelu"),
        "glm_asr-wide": lambda: glm_asr(
            dict(head_dim=12, num_key_value_heads=1, tie_word_embeddings=True), "relu",
            num_mel_bins=16, num_attention_heads=4, hidden_act="silu",
            rope_parameters=dict(
                rope_type="default", rope_theta=500.0, partial_rotary_factor=0.75,
            ),
        ),
        "qwen3_asr": lambda: qwen3_asr(dict(head_dim=8)),
        "qwen3_asr-wide": lambda: qwen3_asr(
            dict(hidden_size=48, head_dim=12, num_key_value_heads=1, tie_word_embeddings=True),
            d_model=48, encoder_attention_heads=3, encoder_layers=3, num_mel_bins=21,
            downsample_hidden_size=10, n_window_infer=100, activation_function="relu",
        ),
        "qwen3_asr-published": lambda: qwen3_asr(
            dict(hidden_size=24, head_dim=8, tie_word_embeddings=True), d_model=24,
            encoder_layers=1, num_mel_bins=16, downsample_hidden_size=8,
        ),
    }


# Those that cut a sound to parts, and say how much of the last part is sound.
PROCESSORS = {
    "audioflamingo3": AudioFlamingo3Processor, "glmasr": GlmAsrProcessor,
    "musicflamingo": MusicFlamingoProcessor,
}


def qwen3_inputs(extractor, sounds):
    """Returns the inputs of Qwen3-ASR. As in vLLM, a sound does not depend on those beside it."""
    fields = dict(padding=True, return_attention_mask=True, return_tensors="pt")
    each = [extractor(it, sampling_rate=RATE, **fields) for it in sounds]
    most = max(it["input_features"].shape[-1] for it in each)
    filled = lambda it: torch.nn.functional.pad(it, (0, most - it.shape[-1]))
    features = torch.cat([filled(it["input_features"]) for it in each])
    mask = torch.cat([filled(it["attention_mask"]) for it in each])
    after = lambda count: -(-count // 8)
    counts = [it // 100 * 13 + after(it % 100) for it in mask.sum(-1).tolist()]
    return dict(input_features=features, input_features_mask=mask), counts


def inputs_of(model, extractor, words, sounds):
    """Returns the model's inputs of sounds, and the number of embeddings of each."""
    config = model.config
    if config.model_type == "qwen3_asr":
        return qwen3_inputs(extractor, sounds)
    if config.model_type == "voxtral":
        times = 2 * config.audio_config.max_source_positions
        kwargs = dict(
            sampling_rate=RATE, padding=True, truncation=False,
            pad_to_multiple_of=times * extractor.hop_length, return_tensors="pt",
        )
        retrieve = VoxtralProcessor._retrieve_input_features
        features = retrieve(SimpleNamespace(feature_extractor=extractor), sounds, times, **kwargs)
        merge = config.audio_config.intermediate_size // config.audio_config.hidden_size
        parts = [-(-len(it) // (times * extractor.hop_length)) for it in sounds]
        counts = [part * config.audio_config.max_source_positions // merge for part in parts]
        return dict(input_features=features), counts
    if config.model_type in PROCESSORS:
        # One text needs no padding, and the processor wants a token for it.
        words.pad_token = words.convert_ids_to_tokens(0)
        marks = dict(audio_bos_token="<|audio_bos|>", audio_eos_token="<|audio_eos|>")
        marks = marks if config.model_type == "musicflamingo" else {}
        kind = PROCESSORS[config.model_type]
        processor = kind(extractor, words, audio_token="<|AUDIO|>", **marks)
        inputs = processor(text=["<|AUDIO|>"] * len(sounds), audio=sounds, sampling_rate=RATE)
        counts = (inputs["input_ids"] == FIRST_TAG).sum(-1).tolist()
        return {name: inputs[name] for name in ("input_features", "input_features_mask")}, counts
    processor = Qwen2AudioProcessor(extractor, words)
    inputs = processor(
        text="".join("<|AUDIO|>" for _ in sounds), audio=sounds, sampling_rate=RATE,
        return_tensors="pt",
    )
    lens = inputs["feature_attention_mask"].sum(-1).tolist()
    counts = [((it - 1) // 2 + 1 - 2) // 2 + 1 for it in lens]
    assert sum(counts) == inputs["input_ids"].shape[1]
    return {name: inputs[name] for name in ("input_features", "feature_attention_mask")}, counts


def run(model, tokens, inputs):
    """Returns the log-probabilities after a prompt, and the embeddings of its sounds."""
    found = []
    hook = model.model.multi_modal_projector.register_forward_hook(
        lambda _module, _inputs, output: found.append(output)
    )
    ids = torch.tensor([tokens])
    logits = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **inputs
    ).logits[0]
    hook.remove()
    return logits[-1].log_softmax(-1), found[0] if found else None


@torch.no_grad()
def record(folder, model, extractor, words):
    token = FIRST_TAG
    # Fewer samples are no embedding of GLM-ASR.
    least = 1_400 if model.config.model_type == "glmasr" else 0
    wanted = [(parts, max(count, least)) for parts, count in SOUNDS]
    sounds = [sound(*it) for it in wanted]
    all_of = [inputs_of(model, extractor, words, [it]) for it in sounds]
    records = []
    for (parts, count), (inputs, [num_embeds]) in zip(wanted, all_of):
        # A second token, because the class takes a single one for a text without expansion.
        _, embeddings = run(model, [5] + [token] * num_embeds + [6], inputs)
        embeddings = embeddings.reshape(-1, embeddings.shape[-1])[:num_embeds]
        frames = None
        masks = [mask for name, mask in inputs.items() if name.endswith("mask")]
        features = inputs["input_features"]
        if model.config.model_type == "qwen3_asr":
            features = features[0][:, : int(masks[0].sum())].split(100, dim=1)
        elif masks:
            frames = (int(masks[0][-1].sum()) - 1) // 2 + 1
        records.append(dict(
            parts=parts, count=count, shapes=[list(it.shape) for it in features],
            mels=[rounded(it) for it in features], frames=frames, num_embeds=num_embeds,
            embeddings=rounded(embeddings),
        ))
    prompts = []
    for of_prompt in PROMPTS:
        generator = torch.Generator().manual_seed(len(of_prompt))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens, inputs = text(3), {}
        placed = list(tokens)
        for index in of_prompt:
            after = text(4)
            embeds = [token] * all_of[index][1][0]
            has_marks = model.config.model_type == "musicflamingo"
            tokens += [token + 1, *embeds, token + 2] if has_marks else embeds
            tokens += after
            placed += [token] + after
        if of_prompt:
            inputs, _ = inputs_of(model, extractor, words, [sounds[index] for index in of_prompt])
        log_probs, _ = run(model, tokens, inputs)
        prompts.append(dict(
            token_ids=tokens, images=list(of_prompt), positions=None,
            last_log_probs=rounded(log_probs), placed_token_ids=placed,
            greedy_token_ids=greedy_tokens(model, torch.tensor([tokens]), inputs),
        ))
    golden = dict(sounds=records, prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def as_published(folder):
    """Makes a folder of Qwen3-ASR have the names of published models."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config["text_config"].pop("rope_parameters")
    config["text_config"] |= dict(
        model_type="qwen3_asr_text", rope_theta=rope["rope_theta"],
        rope_scaling=dict(
            mrope_interleaved=True, interleaved=True, mrope_section=[2, 1, 1],
            rope_type="default", type="default",
        ),
    )
    audio = config["audio_config"]
    audio |= dict(model_type="qwen3_asr_audio_encoder", max_source_positions=1_500)
    del audio["max_position_embeddings"]
    names = ("architectures", "model_type", "dtype", "transformers_version")
    outer = {name: config.pop(name) for name in names}
    outer |= dict(support_languages=["Chinese", "English"], thinker_config=config)
    path.write_text(json.dumps(outer, indent=2) + "\n")
    new = {
        "model.language_model.": "thinker.model.", "model.audio_tower.": "thinker.audio_tower.",
        "model.multi_modal_projector.linear_1.": "thinker.audio_tower.proj1.",
        "model.multi_modal_projector.linear_2.": "thinker.audio_tower.proj2.",
    }

    def renamed(name):
        [old] = [old for old in new if name.startswith(old)]
        return new[old] + name.removeprefix(old)

    path = folder / "model.safetensors"
    tensors = {renamed(name): tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata=dict(format="pt"))
    path.chmod(0o644)
    path = folder / "preprocessor_config.json"
    fields = json.loads(path.read_text())
    fields = {name: fields[name] for name in fields if name not in ("min_length", "n_window")}
    fields["feature_extractor_type"] = "WhisperFeatureExtractor"
    path.write_text(json.dumps(fields, indent=2) + "\n")


def build(name, kind, config):
    folder = HERE / "hearing" / name
    config._attn_implementation = "eager"
    model = kind(config).eval()
    randomize(model, seed=sum(name.encode()) + SEEDS.get(name, 0))
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer().save_pretrained(folder)
    audio = config.audio_config
    hop = GLM_HOP if audio.model_type == "glmasr_encoder" else 160
    is_qwen3 = config.model_type == "qwen3_asr"
    extractor = (Qwen3ASRFeatureExtractor if is_qwen3 else WhisperFeatureExtractor)(
        feature_size=audio.num_mel_bins, hop_length=hop, chunk_length=1,
    )
    extractor.save_pretrained(folder)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    record(folder, model, extractor, tokenizer())
    if name.endswith("-published"):
        as_published(folder)


def main():
    torch.set_num_threads(1)
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name]())
        print(name, flush=True)


if __name__ == "__main__":
    main()
