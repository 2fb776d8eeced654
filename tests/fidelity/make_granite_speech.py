"""Builds the models of Granite Speech for the hearing tests and records transformers' answers.

    python tests/fidelity/make_granite_speech.py                   # all, into tests/fidelity/hearing
    python tests/fidelity/make_granite_speech.py granite_speech    # some of them
    python tests/fidelity/make_granite_speech.py transcription     # tests/fidelity/transcription
    python tests/fidelity/make_granite_speech.py adapters          # adapters_granite_speech
    python tests/fidelity/make_granite_speech.py heard             # its answers about sounds
    python tests/fidelity/make_granite_speech.py adapted           # granite_speech-adapter

The folders are those of `make_hearing.py`. A spectrogram of `golden.json` has a row for each state.
`-wide` has another form of spectrograms, in the fields that transformers reads: its feature
extractor does not read `melspec_kwargs` of its own file. The model of the transcription tests has
prompts with vLLM's instructions. The adapters are those of PEFT over `granite_speech`, and their
answers are those of `make_adapters.py`. `heard.json` has answers about a sound, without the
matrices for the encoder. `transcription/granite_speech-adapter` is an adapter for that model, with
the texts that the model writes with it.

Needs: torch, torchaudio, transformers >= 5, peft, soundfile. Nothing is downloaded.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import (
    GraniteSpeechConfig,
    GraniteSpeechFeatureExtractor,
    GraniteSpeechForConditionalGeneration,
    GraniteSpeechPlusConfig,
    GraniteSpeechPlusForConditionalGeneration,
    GraniteSpeechProcessor,
    PreTrainedTokenizerFast,
)

from corpus import train_tokenizer
from make_hearing import FIRST_TAG, HERE, sound
from make_vision import greedy_tokens, randomize, rounded, text_config

SOUNDS = [
    (["rising"], 16_000),
    (["noise"], 8_000),
    (["clicks", "noise"], 15_321),
    (["rising"], 700),
    (["noise", "rising", "clicks"], 33_000),
    # One state.
    (["noise"], 300),
]
# As in vLLM, a prompt has one sound.
PROMPTS = [[], [1], [3], [4]]
AUDIO = "<|audio|>"


def tokenizer():
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    words.add_special_tokens(dict(additional_special_tokens=[AUDIO]))
    words.pad_token = words.convert_ids_to_tokens(0)
    return words


def config_of(kind, text, encoder, projector, **fields):
    sizes = dict(
        input_dim=160, num_layers=2, hidden_dim=32, num_heads=2, output_dim=12, context_size=8,
        max_pos_emb=12, conv_kernel_size=5,
    ) | encoder
    width = sizes["hidden_dim"] * (1 + len(sizes.get("cat_hidden_layers", [])))
    former = dict(
        model_type="blip_2_qformer", hidden_size=24, num_attention_heads=2, num_hidden_layers=2,
        intermediate_size=40, encoder_hidden_size=width, cross_attention_frequency=1,
    )
    return kind(
        text_config=text_config("granite", **text), encoder_config=sizes,
        projector_config=former | projector, **dict(
            audio_token_index=FIRST_TAG, has_lora_adapter=False, tie_word_embeddings=False,
        ) | fields,
    )


WIDE = dict(
    input_dim=48, num_layers=3, hidden_dim=48, num_heads=3, dim_head=12, output_dim=10,
    context_size=20, max_pos_emb=20, conv_kernel_size=4, conv_expansion_factor=1,
    feedforward_mult=2,
)
# The fields that transformers reads, which it does not write.
FEATURES = dict(n_mels=24, hop_length=200, n_fft=400, win_length=320)


def models():
    plain = GraniteSpeechForConditionalGeneration, GraniteSpeechConfig
    plus = GraniteSpeechPlusForConditionalGeneration, GraniteSpeechPlusConfig
    factors = dict(
        embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.7,
        logits_scaling=2.0,
    )
    tied = dict(tie_word_embeddings=True)
    return {
        "granite_speech": (plain[0], config_of(plain[1], factors, {}, {}), {}),
        "granite_speech-wide": (
            plain[0],
            config_of(
                plain[1], dict(hidden_size=48, num_key_value_heads=1) | tied, WIDE,
                dict(
                    hidden_size=32, num_attention_heads=4, num_hidden_layers=3, hidden_act="relu",
                    cross_attention_frequency=2, layer_norm_eps=1e-5,
                ),
                window_size=6, downsample_rate=3, **tied,
            ),
            FEATURES,
        ),
        "granite_speech_plus": (
            # The states after half of the layers have those of the output layer, too.
            plus[0], config_of(plus[1], factors, dict(cat_hidden_layers=[1]), {}), {},
        ),
        "granite_speech_plus-wide": (
            plus[0],
            config_of(
                plus[1], dict(num_key_value_heads=2) | tied,
                WIDE | dict(num_layers=4, cat_hidden_layers=[0, 3]),
                dict(num_hidden_layers=1), window_size=8, downsample_rate=2, **tied,
            ),
            FEATURES,
        ),
    }


def save_extractor(folder, config, features):
    extractor = GraniteSpeechFeatureExtractor(
        projector_window_size=config.window_size, projector_downsample_rate=config.downsample_rate,
    )
    extractor.save_pretrained(folder)
    if features:
        path = folder / "preprocessor_config.json"
        fields = json.loads(path.read_text()) | features
        del fields["melspec_kwargs"], fields["feature_size"]
        path.write_text(json.dumps(fields, indent=2) + "\n")
    return GraniteSpeechFeatureExtractor.from_pretrained(folder)


def loaded(kind, folder):
    """Loads a model. The classes of transformers 5.24 forget the divisor of logits, which their text
    model and vLLM have."""
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    divisor = model.config.text_config.logits_scaling
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() / divisor)
    return model


def build(folder, kind, config, features, seed, before=lambda model: None):
    config._attn_implementation = "eager"
    model = kind(config).eval()
    randomize(model, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0.0, 0.2, generator=generator)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5, generator=generator)
    before(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    extractor = save_extractor(folder, config, features)
    return loaded(kind, folder), extractor


def inputs_of(extractor, words, text, samples):
    """Returns the token ids of a text with one sound, and the model's inputs of the sound."""
    inputs = GraniteSpeechProcessor(extractor, words)(text=text, audio=[samples])
    ids = torch.as_tensor(inputs["input_ids"])[0].tolist()
    features = ("input_features", "input_features_mask")
    return ids, {name: torch.as_tensor(inputs[name]) for name in features}


@torch.no_grad()
def record(folder, model, extractor, words):
    sounds = [sound(*it) for it in SOUNDS]
    all_of = [inputs_of(extractor, words, AUDIO, it) for it in sounds]
    records, counts = [], []
    for (parts, count), (ids, inputs) in zip(SOUNDS, all_of):
        embeddings = model.get_audio_features(inputs["input_features"]).pooler_output[0]
        counts.append(ids.count(FIRST_TAG))
        assert counts[-1] == len(embeddings) == int(inputs["input_features_mask"].sum())
        [mel] = inputs["input_features"]
        records.append(dict(
            parts=parts, count=count, shapes=[list(mel.shape)], mels=[rounded(mel)], frames=None,
            num_embeds=counts[-1], embeddings=rounded(embeddings),
        ))
    prompts = []
    for of_prompt in PROMPTS:
        generator = torch.Generator().manual_seed(len(of_prompt))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens, inputs = text(3), {}
        placed = list(tokens)
        for index in of_prompt:
            after, inputs = text(4), all_of[index][1]
            tokens += [FIRST_TAG] * counts[index] + after
            placed += [FIRST_TAG] + after
        ids = torch.tensor([tokens])
        row = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **inputs
        ).logits[0, -1]
        prompts.append(dict(
            token_ids=tokens, images=list(of_prompt), positions=None,
            last_log_probs=rounded(row.log_softmax(-1)), placed_token_ids=placed,
            greedy_token_ids=greedy_tokens(model, ids, inputs),
        ))
    golden = dict(sounds=records, prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def hearing(name):
    folder = HERE / "hearing" / name
    kind, config, features = models()[name]
    model, extractor = build(folder, kind, config, features, sum(name.encode()))
    words = tokenizer()
    words.save_pretrained(folder)
    record(folder, model, extractor, words)


TEMPLATE = (
    "{% for message in messages %}<|role|>{{ message.role }}<|end_role|>{{ message.content }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|role|>assistant<|end_role|>{% endif %}"
)
MARKS = ["<|end|>", "<|role|>", "<|end_role|>", AUDIO]
INSTRUCTIONS = {
    None: "can you transcribe the speech into a written format?",
    "de": "translate the speech to German",
    # Not a language of the model.
    "ru": "translate the speech to ru",
}


@torch.no_grad()
def transcription():
    from make_transcription import byte_tokenizer, greedy, samples

    folder = HERE / "transcription/granite_speech"
    words = byte_tokenizer(MARKS, chat_template=TEMPLATE)
    of = words.convert_tokens_to_ids
    text = dict(vocab_size=len(words), eos_token_id=of(MARKS[0]))
    config = config_of(GraniteSpeechConfig, text, {}, {}, audio_token_index=of(AUDIO))
    kind = GraniteSpeechForConditionalGeneration
    letters = torch.tensor([of(chr(code)) for code in range(33, 127)])

    def of_letters(model):
        """Makes tokens that are no letters less likely than letters."""
        is_letter = torch.zeros(len(words), dtype=torch.bool)
        is_letter[letters] = True
        model.lm_head.weight.data[~is_letter] = 0

    model, extractor = build(folder, kind, config, {}, 43, of_letters)
    words.save_pretrained(folder)
    golden = []
    all_parts = [["rising"], ["noise"], ["rising", "clicks", "noise", "rising"]]
    for parts, to_language in [(parts, code) for parts in all_parts for code in INSTRUCTIONS]:
        message = dict(role="user", content=AUDIO + INSTRUCTIONS[to_language])
        prompt = words.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        tokens, inputs = inputs_of(extractor, words, prompt, samples(parts))
        text = words.decode(greedy(model, tokens, inputs), skip_special_tokens=True)
        golden.append(dict(
            parts=parts, language=None, to_language=to_language, token_ids=tokens, text=text,
        ))
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def adapters():
    from peft import LoraConfig, PeftModel

    from make_adapters import greedy, random_adapter

    name = "granite_speech"
    folder, out = HERE / "hearing" / name, HERE / "adapters_granite_speech" / name
    load = lambda: loaded(GraniteSpeechForConditionalGeneration, folder)
    generator = torch.Generator().manual_seed(3)
    # Matrices for the feed-forward parts of the encoder have no effect.
    targets = {"a": ["q_proj", "v_proj"], "b": ["o_proj", "gate_proj", "up_proj", "down_proj"]}
    prompts = [torch.randint(3, 400, (length,), generator=generator).tolist() for length in (5, 19)]
    answers = [{"adapter": None, **greedy(load(), prompt)} for prompt in prompts]
    for adapter, modules in targets.items():
        config = LoraConfig(
            r=4, lora_alpha=8, target_modules=modules, task_type="CAUSAL_LM",
        )
        random_adapter(load(), config, out / adapter, generator)
        (out / adapter / "README.md").unlink(missing_ok=True)
        (out / adapter / "adapter_model.safetensors").chmod(0o644)
        path = out / adapter / "adapter_config.json"
        fields = json.loads(path.read_text()) | dict(base_model_name_or_path=name)
        path.write_text(json.dumps(fields, indent=1) + "\n")
        tuned = PeftModel.from_pretrained(load(), out / adapter).eval()
        answers += [{"adapter": adapter, **greedy(tuned, prompt)} for prompt in prompts]
    (out / "answers.json").write_text(json.dumps(answers) + "\n")


@torch.no_grad()
def heard():
    from peft import PeftModel

    name = "granite_speech"
    folder, out = HERE / "hearing" / name, HERE / "adapters_granite_speech" / name
    extractor = GraniteSpeechFeatureExtractor.from_pretrained(folder)
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    parts, count = SOUNDS[0]
    tokens, inputs = inputs_of(extractor, words, AUDIO, sound(parts, count))
    generator = torch.Generator().manual_seed(5)
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    before, after = text(3), text(4)
    answers = []
    for adapter in [None, "a", "b"]:
        model = loaded(GraniteSpeechForConditionalGeneration, folder)
        if adapter:
            model = PeftModel.from_pretrained(model, out / adapter).eval()
            for key, parameter in model.named_parameters():
                if "lora_" in key and "language_model" not in key:
                    parameter.zero_()
        of_prompt, logprobs = [*before, *tokens, *after], []
        length = len(of_prompt)
        for _ in range(8):
            ids = torch.tensor([of_prompt])
            mask = torch.ones_like(ids)
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **inputs).logits
            row = torch.log_softmax(logits[0, -1].double(), -1)
            of_prompt.append(int(row.argmax()))
            logprobs.append(float(row.max()))
        answers.append(dict(
            adapter=adapter, parts=parts, prompt=[*before, FIRST_TAG, *after],
            tokens=of_prompt[length:], logprobs=logprobs,
        ))
    (out / "heard.json").write_text(json.dumps(answers) + "\n")


@torch.no_grad()
def adapted():
    from peft import LoraConfig, PeftModel

    from make_adapters import random_adapter
    from make_transcription import greedy, samples

    name = "granite_speech"
    folder, out = (HERE / "transcription" / it for it in [name, f"{name}-adapter"])
    load = lambda: loaded(GraniteSpeechForConditionalGeneration, folder)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM",
    )
    random_adapter(load(), config, out, torch.Generator().manual_seed(4))
    (out / "README.md").unlink(missing_ok=True)
    (out / "adapter_model.safetensors").chmod(0o644)
    path = out / "adapter_config.json"
    fields = json.loads(path.read_text()) | dict(base_model_name_or_path=name)
    path.write_text(json.dumps(fields, indent=1) + "\n")
    extractor = GraniteSpeechFeatureExtractor.from_pretrained(folder)
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    tuned = PeftModel.from_pretrained(load(), out).eval()
    golden = []
    for parts in [["rising"], ["noise"]]:
        message = dict(role="user", content=AUDIO + INSTRUCTIONS[None])
        prompt = words.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        tokens, inputs = inputs_of(extractor, words, prompt, samples(parts))
        text = words.decode(greedy(tuned, tokens, inputs), skip_special_tokens=True)
        golden.append(dict(
            parts=parts, language=None, to_language=None, token_ids=tokens, text=text,
        ))
    (out / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    others = {
        "transcription": transcription, "adapters": adapters, "heard": heard, "adapted": adapted,
    }
    for name in sys.argv[1:] or [*models(), *others]:
        others[name]() if name in others else hearing(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
