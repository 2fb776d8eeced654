"""Compares Whisper models of random configs with Hugging Face transformers.

    cargo build
    python tests/fidelity/random_speech.py target/debug/playhouse --seed 3 --count 6

Each model begins as one of `make_speech.py`. Then random fields of its config change. A server loads
the model in float32 and transcribes three sounds. Its text equals that of the greedy tokens of
transformers, up to the first choice between two nearly equal tokens. Needs what `make_speech.py`
needs. Nothing is downloaded.
"""

import argparse
import json
import random
import shutil
import tempfile
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import numpy as np
import torch
import transformers as hf

import make_speech as speech
import random_configs

NUM_STEPS = 40
NEAR = 1e-3  # a smaller gap of log-probabilities is left to rounding
CHOICES = {
    "d_model": [16, 32, 48], "encoder_layers": [1, 2, 4], "decoder_layers": [1, 2, 4],
    "encoder_attention_heads": [1, 2, 4], "decoder_attention_heads": [1, 2, 4],
    "encoder_ffn_dim": [24, 64, 80], "decoder_ffn_dim": [24, 64, 80], "num_mel_bins": [80, 128],
    "activation_function": ["gelu", "relu", "gelu_new", "silu"],
    "scale_embedding": [False, True], "tie_word_embeddings": [False, True],
}  # fmt: skip


def make(folder, fields, seed):
    """Writes a model and returns it with its tokenizer and its extractor."""
    words = speech.tokenizer(folder)
    of = words.token_to_id
    end = of("<|endoftext|>")
    torch.manual_seed(seed)
    config = hf.WhisperConfig(
        vocab_size=words.get_vocab_size(), max_source_positions=50, max_target_positions=64, init_std=0.2,
        decoder_start_token_id=of("<|startoftranscript|>"), eos_token_id=end, bos_token_id=end,
        pad_token_id=end, **fields,
    )  # fmt: skip
    model = hf.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias") or "layer_norm.weight" in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            if "embed_positions" in name and "decoder" in name:
                tensor.normal_(0, 0.5)
    model.save_pretrained(folder)
    extractor = hf.WhisperFeatureExtractor(feature_size=fields["num_mel_bins"], chunk_length=1)
    extractor.save_pretrained(folder)
    return model, words, extractor


def expected(model, words, extractor, samples):
    """Returns the greedy tokens up to the first near tie, and whether the output has ended there."""
    start = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    tokens = prompt = [words.token_to_id(token) for token in start]
    mel = extractor(samples.astype(np.float32) / 32768, sampling_rate=speech.RATE, return_tensors="pt")
    with torch.no_grad():
        states = model.model.encoder(mel.input_features).last_hidden_state
        for _ in range(NUM_STEPS):
            logits = model(encoder_outputs=(states,), decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
            best = logits.log_softmax(-1).topk(2)
            if float(best.values[0] - best.values[1]) < NEAR:
                return tokens[len(prompt) :], False
            if int(best.indices[0]) == model.config.eos_token_id:
                return tokens[len(prompt) :], True
            tokens = tokens + [int(best.indices[0])]
    return tokens[len(prompt) :], False


def transcribed(server, path):
    boundary = uuid.uuid4().hex
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
             for name, value in [("language", "en"), ("temperature", "0"), ("model", "m")]]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = b"".join([*parts, head.encode(), path.read_bytes(), f"\r\n--{boundary}--\r\n".encode()])
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/audio/transcriptions", body,
                                     {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    return json.load(urllib.request.urlopen(request, timeout=120))["text"]


def check(program, folder, fields, seed, sounds):
    model, words, extractor = make(folder, fields, seed)
    total = 0
    try:
        with random_configs.Server(program, folder, ["--runner", "generate"]) as server:
            for name, samples in sounds.items():
                tokens, has_ended = expected(model, words, extractor, samples)
                text = words.decode(tokens, skip_special_tokens=True).rstrip("\ufffd")
                path = folder / f"{name}.wav"
                speech.write_wav(path, samples)
                found, total = transcribed(server, path), total + len(tokens)
                if not (found.rstrip("\ufffd") == text if has_ended else found.startswith(text)):
                    return "WRONG", f"{name}: {found!r}, not {text!r}"
    except random_configs.Refused as error:
        return ("refused" if "config.json: `" in str(error) else "BROKEN"), str(error).strip()[:300]
    except (OSError, KeyError) as error:
        text = error.read().decode() if isinstance(error, urllib.error.HTTPError) else repr(error)
        return "BROKEN", text[:300]
    return "ok", f"{total} tokens"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the playhouse program")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    counts, work, sounds = {}, Path(tempfile.mkdtemp(prefix="random-speech-")), speech.sounds()
    for index in range(args.count):
        rng, folder = random.Random(f"{args.seed}-{index}"), work / str(index)
        fields = {name: rng.choice(values) for name, values in CHOICES.items()}
        folder.mkdir()
        result, remark = check(args.program, folder, fields, rng.randrange(1000), sounds)
        counts[result] = counts.get(result, 0) + 1
        print(f"{result:8}{index} {remark} {'' if result == 'ok' else fields}", flush=True)
        if result not in ("WRONG", "BROKEN"):
            shutil.rmtree(folder)
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if counts.keys() & {"WRONG", "BROKEN"}:
        raise SystemExit(f"see {work}")


if __name__ == "__main__":
    main()
