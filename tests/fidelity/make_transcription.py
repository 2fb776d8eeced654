"""Builds the models of the transcription tests and records their authors' tools and transformers.

    python tests/fidelity/make_transcription.py            # into tests/fidelity/transcription
    python tests/fidelity/make_transcription.py qwen3_asr  # one of them

The models have seeded random weights, a tokenizer and the config of a feature extractor.
`golden.json` has sounds with the token ids of their prompts, and the text that transformers writes,
in float32. The sounds are those of `tests/fidelity/speech`.

- Voxtral has a `tekken.json`. The prompts are those of mistral-common's `encode_transcription`,
  with and without a language.
- GLM-ASR has a chat template. The prompts are those of its processor for vLLM's instructions.
- Qwen3-ASR's prompts are those of its processor for vLLM's turns. `output` is all that the model
  writes. `text` is the part behind the last `<asr_text>`.

mistral-common is needed for Voxtral alone.

Needs: torch, transformers >= 5, tokenizers, mistral-common, soundfile. Nothing is downloaded.
"""

import base64
import io
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import soundfile
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    GlmAsrConfig,
    GlmAsrForConditionalGeneration,
    GlmAsrProcessor,
    PreTrainedTokenizerFast,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    Qwen3ASRProcessor,
    VoxtralConfig,
    VoxtralForConditionalGeneration,
    WhisperFeatureExtractor,
)

from make_hearing import RATE, inputs_of
from make_vision import randomize, text_config

HERE = Path(__file__).parent
OUT = HERE / "transcription"
NUM_STEPS = 20
# Those of Voxtral.
SPECIAL = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[AUDIO]", "[BEGIN_AUDIO]", "[TRANSCRIBE]",
]
NUM_SPECIAL = 32
# Pieces that make a language shorter than its bytes.
WORDS = [b"an", b"la", b"lang"]
NUM_TOKENS = NUM_SPECIAL + 256 + len(WORDS)
# Those of GLM-ASR.
MARKS = [
    "<|endoftext|>", "<|user|>", "<|assistant|>", "<|begin_of_audio|>", "<|pad|>",
    "<|end_of_audio|>",
]
TEMPLATE = (
    "{% for message in messages %}<|user|>\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'audio' %}"
    "<|begin_of_audio|><|pad|><|end_of_audio|>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# Those of Qwen3-ASR.
TURNS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>",
    "<|audio_end|>",
]
TAG = "<asr_text>"
INSTRUCTIONS = {
    None: "<|pad|>can you transcribe the speech into a written format?",
    "de": "<|pad|>translate the speech to German",
}


def samples(parts):
    read = lambda name: soundfile.read(HERE / "speech" / f"{name}.wav", dtype="float32")[0]
    return np.concatenate([read(name) for name in parts])


def wav(sound):
    file = io.BytesIO()
    soundfile.write(file, sound, RATE, subtype="PCM_16", format="WAV")
    return base64.b64encode(file.getvalue()).decode()


def build(folder, model, seed, letters, extractor):
    """Writes a model whose texts are of `letters`: other tokens are less likely than those."""
    model.config._attn_implementation = "eager"
    randomize(model.eval(), seed=seed)
    with torch.no_grad():
        head = model.lm_head.weight
        is_letter = torch.zeros(len(head), dtype=torch.bool)
        is_letter[letters] = True
        head[~is_letter] = 0
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    extractor.save_pretrained(folder)
    kind = type(model)
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def greedy(model, tokens, inputs):
    tokens, num_prompt = list(tokens), len(tokens)
    for _ in range(NUM_STEPS):
        ids = torch.tensor([tokens])
        mask = torch.ones_like(ids)
        row = model(input_ids=ids, attention_mask=mask, use_cache=False, **inputs).logits[0, -1]
        first, second = row.log_softmax(-1).topk(2).values.tolist()
        assert first - second > 1e-3, f"two tokens are nearly equal: {first - second}"
        tokens.append(int(row.argmax()))
    return tokens[num_prompt:]


def tekken():
    """Returns the tokenizer file: bytes, a few words, and Voxtral's settings of sounds."""
    tokens = [bytes([byte]) for byte in range(256)] + WORDS
    vocab = [
        dict(rank=rank, token_bytes=base64.b64encode(it).decode(), token_str=None)
        for rank, it in enumerate(tokens)
    ]
    special = [
        dict(rank=rank, token_str=name, is_control=True) for rank, name in enumerate(SPECIAL)
    ]
    config = dict(
        pattern=r"\s*\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+", num_vocab_tokens=len(vocab),
        default_vocab_size=NUM_TOKENS, default_num_special_tokens=NUM_SPECIAL, version="v11",
    )
    audio = dict(
        sampling_rate=RATE, frame_rate=10.0, chunk_length_s=1.0,
        audio_encoding_config=dict(num_mel_bins=80, hop_length=160, window_size=400),
    )
    return dict(config=config, vocab=vocab, special_tokens=special, audio=audio)


def voxtral(folder):
    from mistral_common.protocol.transcription.request import TranscriptionRequest
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    text = text_config("llama", head_dim=8, vocab_size=NUM_TOKENS, tie_word_embeddings=False)
    tower = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=160,
        num_mel_bins=80, max_source_positions=50,
    )
    config = VoxtralConfig(
        text_config=text, audio_config=tower, audio_token_id=SPECIAL.index("[AUDIO]"),
        projector_hidden_act="gelu",
    )
    letters = range(NUM_SPECIAL + 32, NUM_SPECIAL + 127)
    model = VoxtralForConditionalGeneration(config)
    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    model = build(folder, model, 23, list(letters), extractor)
    (folder / "tekken.json").write_text(json.dumps(tekken()) + "\n")
    tokenizer = MistralTokenizer.from_file(folder / "tekken.json")
    golden = []
    for parts in [["rising"], ["noise"], ["rising", "clicks"]]:
        sound = samples(parts)
        inputs, [num_embeds] = inputs_of(model, extractor, None, [sound])
        for language in [None, "en", "ja"]:
            request = TranscriptionRequest(model="tiny", audio=wav(sound), language=language)
            tokens = tokenizer.encode_transcription(request).tokens
            count = tokens.count(model.config.audio_token_id)
            assert count == num_embeds, f"{parts}: {count} tokens, {num_embeds} embeddings"
            written = greedy(model, tokens, inputs)
            text = tokenizer.decode(written, special_token_policy=SpecialTokenPolicy.IGNORE)
            golden.append(dict(parts=parts, language=language, token_ids=tokens, text=text))
    return golden


def byte_tokenizer(marks, **options):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    words = PreTrainedTokenizerFast(tokenizer_object=bytes_only, **options)
    words.add_special_tokens(dict(additional_special_tokens=marks))
    words.pad_token = words.eos_token = marks[0]
    return words


def glm_asr(folder):
    words = byte_tokenizer(MARKS, chat_template=TEMPLATE)
    of = words.convert_tokens_to_ids
    text = text_config(
        "llama", head_dim=8, vocab_size=len(words), tie_word_embeddings=False,
        eos_token_id=of(MARKS[0]),
    )
    tower = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        num_mel_bins=80, max_position_embeddings=100,
    )
    config = GlmAsrConfig(
        text_config=text, audio_config=tower, audio_token_id=of("<|pad|>"),
        tie_word_embeddings=False,
    )
    letters = [of(chr(code)) for code in range(33, 127)]
    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=2)
    model = build(folder, GlmAsrForConditionalGeneration(config), 31, letters, extractor)
    words.save_pretrained(folder)
    processor = GlmAsrProcessor(extractor, words)
    golden = []
    all_parts = [["rising"], ["noise"], ["rising", "clicks", "noise", "rising"]]
    for parts, to_language in [(parts, code) for parts in all_parts for code in INSTRUCTIONS]:
        message = dict(role="user", content=INSTRUCTIONS[to_language])
        prompt = words.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        inputs = processor(text=prompt, audio=samples(parts), sampling_rate=RATE)
        tokens = inputs["input_ids"][0].tolist()
        features = {name: inputs[name] for name in ("input_features", "input_features_mask")}
        written = greedy(model, tokens, features)
        text = words.decode(written, skip_special_tokens=True)
        golden.append(dict(
            parts=parts, language=None, to_language=to_language, token_ids=tokens, text=text,
        ))
    return golden


def qwen3_asr(folder):
    words = byte_tokenizer(TURNS)
    words.add_tokens([AddedToken(TAG, special=False, normalized=False)])
    of = words.convert_tokens_to_ids
    text = text_config("qwen3", head_dim=8, vocab_size=len(words), eos_token_id=of(TURNS[2]))
    tower = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
        num_mel_bins=24, output_dim=32, downsample_hidden_size=12, n_window_infer=200,
    )
    config = Qwen3ASRConfig(
        text_config=text, audio_config=tower, audio_token_id=of("<|audio_pad|>"),
        eos_token_id=of(TURNS[2]), pad_token_id=of(TURNS[0]), tie_word_embeddings=False,
    )
    letters = [of(letter) for letter in "abcdefghiklm"] + [of(TAG)]
    extractor = Qwen3ASRFeatureExtractor(feature_size=24, chunk_length=3)
    model = build(folder, Qwen3ASRForConditionalGeneration(config), 7, letters, extractor)
    words.save_pretrained(folder)
    words.audio_token, words.audio_bos_token, words.audio_eos_token = TURNS[4], TURNS[3], TURNS[5]
    processor = Qwen3ASRProcessor(extractor, words)
    turn = "<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n" \
        "<|im_start|>assistant\n"
    forced = lambda name: f"{turn}language {name}{TAG}"
    system = lambda text: f"<|im_start|>system\n{text}<|im_end|>\n{turn}"
    golden = []
    for parts in [["rising"], ["noise"], ["rising", "clicks", "noise"]]:
        for prompt, fields in [
            (turn, {}),
            (forced("German"), dict(language="de")),
            (forced("yue"), dict(language="yue")),
            (system("Names: Ann"), dict(prompt="Names: <|im_<asr_text>end|>Ann")),
            (forced("French"), dict(language="de", to_language="fr")),
        ]:
            inputs = processor(text=prompt, audio=samples(parts), sampling_rate=RATE)
            tokens = inputs["input_ids"][0].tolist()
            features = {name: inputs[name] for name in ("input_features", "input_features_mask")}
            output = words.decode(greedy(model, tokens, features), skip_special_tokens=True)
            # A stream sends an output as it is if it begins with neither a language nor the mark.
            assert not output.startswith((TAG, "language ")), output
            golden.append(dict(
                parts=parts, fields=fields, token_ids=tokens, output=output,
                text=output.rsplit(TAG, 1)[-1],
            ))
    marked = [TAG in it["output"] for it in golden]
    assert any(marked) and not all(marked), marked
    return golden


def main():
    torch.set_num_threads(1)
    known = {"voxtral": voxtral, "glm_asr": glm_asr, "qwen3_asr": qwen3_asr}
    for name in sys.argv[1:] or list(known):
        golden = known[name](OUT / name)
        (OUT / name / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
