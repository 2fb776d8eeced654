"""Records what transformers answers in languages that a request names, with models of
`make_texts.py`.

    python tests/fidelity/make_languages.py

Needs: torch, transformers >= 5, tokenizers, safetensors. Nothing is downloaded.
"""

import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers as hf
from tokenizers import Tokenizer

HERE = Path(__file__).parent
EOS = 2
NUM_STEPS = 12
TEXTS = ["a", "The tower is 324 metres tall.", "one two three", "\u00fc\u4e2d"]
LANGUAGES = [("en_XX", "de_DE"), ("de_DE", "en_XX"), ("de_DE", "de_DE"), (None, "en_XX"), ("de_DE", None)]


def main():
    torch.set_num_threads(1)
    recorded = []
    for name in ["mbart", "mbart-wide", "m2m_100"]:
        folder = HERE / "texts" / name
        ids = Tokenizer.from_file(str(folder / "tokenizer.json"))
        model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        settings = model.generation_config
        for text in TEXTS:
            for source, target in LANGUAGES:
                body = ids.encode(text, add_special_tokens=False).ids
                token = ids.token_to_id(source or "en_XX")
                around = ([], [EOS, token]) if name == "mbart" else ([token], [EOS])
                start, forced = settings.decoder_start_token_id, settings.forced_bos_token_id
                # mBART of one language begins with it. The others have it second.
                if target is not None and name == "mbart":
                    start = ids.token_to_id(target)
                elif target is not None:
                    forced = ids.token_to_id(target)
                prompt = [start] + ([] if forced is None else [forced])
                generated = model.generate(
                    torch.tensor([around[0] + body + around[1]]),
                    do_sample=False,
                    num_beams=1,
                    max_new_tokens=NUM_STEPS + len(prompt) - 1,
                    min_new_tokens=NUM_STEPS + len(prompt) - 1,
                    decoder_start_token_id=start,
                    forced_bos_token_id=forced,
                    forced_eos_token_id=None,
                    eos_token_id=None,
                    pad_token_id=None,
                )[0].tolist()
                assert generated[: len(prompt)] == prompt, (generated, prompt)
                recorded.append(dict(
                    model=name, text=text, source_lang=source, target_lang=target,
                    prompt_token_ids=prompt, greedy_token_ids=generated[len(prompt) :],
                ))  # fmt: skip
    outputs = {tuple(answer["greedy_token_ids"]) for answer in recorded}
    print(len(recorded), "answers,", len(outputs), "outputs")
    (HERE / "languages.json").write_text(json.dumps(recorded) + "\n")


main()
