"""Builds the model of the transcription tests and records mistral-common and transformers.

    python tests/fidelity/make_transcription.py    # into tests/fidelity/transcription

The model is a Voxtral with seeded random weights, a `tekken.json` and the config of its feature
extractor. `golden.json` has sounds with the token ids that mistral-common's `encode_transcription`
gives them, with and without a language, and the text that transformers writes, in float32. The
sounds are those of `tests/fidelity/speech`.

Needs: torch, transformers >= 5, mistral-common, soundfile. Nothing is downloaded.
"""

import base64
import io
import json
import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import soundfile
import torch
from mistral_common.protocol.transcription.request import TranscriptionRequest
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from transformers import VoxtralConfig, VoxtralForConditionalGeneration, WhisperFeatureExtractor

from make_hearing import RATE, inputs_of
from make_vision import randomize, text_config

HERE = Path(__file__).parent
FOLDER = HERE / "transcription" / "voxtral"
SOUNDS = [["rising"], ["noise"], ["rising", "clicks"]]
LANGUAGES = [None, "en", "ja"]
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
NUM_STEPS = 20


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


def build():
    text = text_config("llama", head_dim=8, vocab_size=NUM_TOKENS, tie_word_embeddings=False)
    tower = dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=160,
        num_mel_bins=80, max_source_positions=50,
    )
    config = VoxtralConfig(
        text_config=text, audio_config=tower, audio_token_id=SPECIAL.index("[AUDIO]"),
        projector_hidden_act="gelu",
    )
    config._attn_implementation = "eager"
    model = VoxtralForConditionalGeneration(config).eval()
    randomize(model, seed=23)
    with torch.no_grad():
        head = model.lm_head.weight
        # Texts are of letters and signs: other tokens are less likely than those.
        ascii_only = torch.zeros(len(head), dtype=torch.bool)
        ascii_only[NUM_SPECIAL + 32 : NUM_SPECIAL + 127] = True
        head[~ascii_only] = 0
    shutil.rmtree(FOLDER, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    WhisperFeatureExtractor(feature_size=80, chunk_length=1).save_pretrained(FOLDER)
    (FOLDER / "tekken.json").write_text(json.dumps(tekken()) + "\n")


def samples(parts):
    read = lambda name: soundfile.read(HERE / "speech" / f"{name}.wav", dtype="float32")[0]
    return np.concatenate([read(name) for name in parts])


def wav(sound):
    file = io.BytesIO()
    soundfile.write(file, sound, RATE, subtype="PCM_16", format="WAV")
    return base64.b64encode(file.getvalue()).decode()


@torch.no_grad()
def text_of(model, tokens, inputs, tokenizer):
    tokens, num_prompt = list(tokens), len(tokens)
    for _ in range(NUM_STEPS):
        ids = torch.tensor([tokens])
        mask = torch.ones_like(ids)
        row = model(input_ids=ids, attention_mask=mask, use_cache=False, **inputs).logits[0, -1]
        first, second = row.log_softmax(-1).topk(2).values.tolist()
        assert first - second > 1e-3, f"two tokens are nearly equal: {first - second}"
        tokens.append(int(row.argmax()))
    return tokenizer.decode(tokens[num_prompt:], special_token_policy=SpecialTokenPolicy.IGNORE)


def main():
    torch.set_num_threads(1)
    build()
    kind = VoxtralForConditionalGeneration
    model = kind.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
    extractor = WhisperFeatureExtractor.from_pretrained(FOLDER)
    tokenizer = MistralTokenizer.from_file(FOLDER / "tekken.json")
    golden = []
    for parts in SOUNDS:
        sound = samples(parts)
        inputs, [num_embeds] = inputs_of(model, extractor, None, [sound])
        for language in LANGUAGES:
            request = TranscriptionRequest(model="tiny", audio=wav(sound), language=language)
            encoded = tokenizer.encode_transcription(request)
            count = encoded.tokens.count(model.config.audio_token_id)
            assert count == num_embeds, f"{parts}: {count} tokens, {num_embeds} embeddings"
            golden.append(dict(
                parts=parts, language=language, token_ids=encoded.tokens,
                text=text_of(model, encoded.tokens, inputs, tokenizer),
            ))
    (FOLDER / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
