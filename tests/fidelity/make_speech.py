"""Builds the speech models of the tests and records the answers of Hugging Face transformers.

    python tests/fidelity/make_speech.py          # all of them, into tests/fidelity/speech

Each model is a folder with seeded random weights, a byte-level tokenizer and `golden.json`. The
sounds stand beside the folders. `mels.json` has some columns of spectrograms of 30 seconds. All
answers are in float32.

Needs: torch, transformers >= 5, tokenizers, safetensors, numpy, soundfile. Nothing is downloaded.
"""

import json
import os
import shutil
import struct
import wave
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import soundfile
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

OUT = Path(__file__).parent / "speech"
RATE = 16000
LANGUAGES = ["en", "de", "fr", "zh"]
SPECIAL = (
    ["<|endoftext|>", "<|startoftranscript|>"]
    + [f"<|{language}|>" for language in LANGUAGES]
    + ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    + ["<|notimestamps|>"]
)
NUM_STEPS = 24  # greedy tokens
COLUMNS = [0, 1, 2, 3, 49, 50, 51, 97, 98, 99, 100, 101, 102, 150, 1500, 2998, 2999]

MODELS = {
    "whisper": dict(
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=80,
    ),
    "whisper-untied": dict(
        d_model=48,
        encoder_layers=3,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=4,
        encoder_ffn_dim=80,
        decoder_ffn_dim=64,
        num_mel_bins=128,
        scale_embedding=True,
        tie_word_embeddings=False,
    ),
}


def sounds():
    """Returns sounds as 16-bit integers: tones that rise, noise, and clicks."""
    time = np.arange(RATE) / RATE
    rising = np.sin(2 * np.pi * (200 * time + 900 * time**2)) * 0.6
    noise = np.random.default_rng(3).normal(0, 0.2, RATE // 2)
    clicks = np.zeros(RATE * 3 // 4)
    clicks[::1999] = 0.9
    named = {"rising": rising, "noise": noise, "clicks": clicks}
    return {name: np.clip(x * 32767, -32768, 32767).astype("<i2") for name, x in named.items()}


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


def tokenizer(folder):
    """Writes a tokenizer whose tokens are bytes, special tokens, and 51 timestamps."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([f"<|{0.02 * i:.2f}|>" for i in range(51)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "WhisperTokenizer", "eos_token": SPECIAL[0], "bos_token": SPECIAL[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tokenizer


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.double().flatten().tolist()]


def record(model, extractor, prompts, named):
    """Returns the answers for each sound."""
    answers = []
    for (name, samples), prompt in zip(named.items(), prompts):
        mel = extractor(samples.astype(np.float32) / 32768, sampling_rate=RATE, return_tensors="pt")
        mel = mel.input_features
        with torch.no_grad():
            states = model.model.encoder(mel).last_hidden_state
            tokens = list(prompt)
            rows = []
            for _ in range(NUM_STEPS):
                ids = torch.tensor([tokens])
                logits = model(encoder_outputs=(states,), decoder_input_ids=ids).logits[0]
                rows = torch.log_softmax(logits, -1)
                tokens.append(int(rows[-1].argmax()))
            gaps = [row.topk(2).values for row in rows]
            least = min(float(gap[0] - gap[1]) for gap in gaps[len(prompt) - 1 :])
            assert least > 1e-3, f"{name}: two tokens are nearly equal: {least}"
            keys = [layer.encoder_attn.k_proj(states)[0] for layer in model.model.decoder.layers]
            values = [layer.encoder_attn.v_proj(states)[0] for layer in model.model.decoder.layers]
        answers.append(
            dict(
                sound=f"{name}.wav",
                mel=rounded(mel),
                states=rounded(states),
                last_key=rounded(keys[-1][-1]),
                last_value=rounded(values[-1][-1]),
                prompt_token_ids=prompt,
                greedy_token_ids=tokens[len(prompt) :],
                log_probs=[rounded(row) for row in rows[:: max(1, len(rows) // 4)]],
                rows=list(range(0, len(rows), max(1, len(rows) // 4))),
            )
        )
    return answers


def make(name, fields, named):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids = tokenizer(folder)
    of = ids.token_to_id
    torch.manual_seed(len(name))
    config = hf.WhisperConfig(
        vocab_size=ids.get_vocab_size(),
        max_source_positions=50,
        max_target_positions=64,
        init_std=0.2,
        decoder_start_token_id=of("<|startoftranscript|>"),
        eos_token_id=of("<|endoftext|>"),
        bos_token_id=of("<|endoftext|>"),
        pad_token_id=of("<|endoftext|>"),
        **fields,
    )
    model = hf.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name_of, tensor in model.named_parameters():
            if name_of.endswith("bias") or "layer_norm.weight" in name_of:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            if "embed_positions" in name_of and "decoder" in name_of:
                tensor.normal_(0, 0.5)
    model.save_pretrained(folder)
    extractor = hf.WhisperFeatureExtractor(feature_size=fields["num_mel_bins"], chunk_length=1)
    extractor.save_pretrained(folder)
    start = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    before = ["<|startofprev|>"] + list("abcdefghijklmnopqrst")
    prompts = [start, before + start, ["<|startoftranscript|>", "<|de|>", "<|translate|>", "<|0.00|>"]]
    prompts = [[of(token) for token in prompt] for prompt in prompts]
    (folder / "golden.json").write_text(json.dumps(record(model, extractor, prompts, named)) + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    named = sounds()
    for name, samples in named.items():
        write_wav(OUT / f"{name}.wav", samples)
    for kind, subtype in [("flac", "PCM_16"), ("ogg", "VORBIS"), ("mp3", "MPEG_LAYER_III")]:
        soundfile.write(OUT / f"rising.{kind}", named["rising"], RATE, subtype=subtype)
    for name, fields in MODELS.items():
        make(name, fields, named)
    mels = []
    for bins in (80, 128):
        extractor = hf.WhisperFeatureExtractor(feature_size=bins)
        for name, samples in named.items():
            mel = extractor(samples.astype(np.float32) / 32768, sampling_rate=RATE, return_tensors="pt")
            columns = mel.input_features[0][:, COLUMNS].T
            mels.append(dict(sound=f"{name}.wav", bins=bins, columns=COLUMNS, values=rounded(columns)))
    (OUT / "mels.json").write_text(json.dumps(mels) + "\n")


main()
