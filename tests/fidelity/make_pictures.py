"""Builds the models of the tests of pooled pictures and records Hugging Face transformers' answers.

    python tests/fidelity/make_pictures.py             # all of them, into tests/fidelity/pictures
    python tests/fidelity/make_pictures.py clip siglip # some of them

Each folder has `golden.json`: the task, settings of the engine, texts with the rows of their
results, and prompts with images with theirs, in float32. Models of two towers are in it, with
seeded random weights. The others are those of `make_vision.py`, to whose folders `model` points.
Images are drawn by the formula of `make_vision.py`. Those of `clip-sentences` are
sentence-transformers' answers.

Needs: torch, torchvision, transformers >= 5, sentence-transformers >= 6, tokenizers, safetensors.
Nothing is downloaded.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from safetensors.torch import save_file
from tokenizers import processors
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    ColPaliConfig,
    ColPaliForRetrieval,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    ModernBertConfig,
    ModernVBertConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipVisionConfig,
)

from corpus import sentences, train_tokenizer
from make_vision import draw, inputs_of, models
from make_vision import tokenizer as tagged_tokenizer

OUT = Path(__file__).parent / "pictures"
VISION = Path(__file__).parent / "vision"
SIZES = [(28, 28), (61, 83), (40, 90), (5, 7), (120, 30)]
TEXTS = [text[:60] for text in sentences(7, 4)] + ["a", "two kettles"]


def rounded(rows):
    return [[float(f"{x:.7g}") for x in row] for row in rows.tolist()]


def normalized(rows):
    return torch.nn.functional.normalize(rows, dim=-1)


def randomize(model, seed):
    """Gives all parameters values that differ from their defaults and that bfloat16 has."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            noise = 1.0 + 0.3 * noise
        else:
            noise = 0.2 * noise
        parameter.data.copy_(noise.to(torch.bfloat16))
    return model.eval()


def tokenizer(template):
    """Returns a tokenizer that writes `template` around a text."""
    whole = train_tokenizer(512)
    specials = [(token, whole.convert_tokens_to_ids(token)) for token in whole.all_special_tokens]
    specials.append(("<|im_start|>", 1))
    whole.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=specials
    )
    return whole


def save(name, model, processor, words, golden):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def images_of(model, processor):
    prompts = []
    for index, size in enumerate(SIZES):
        pixels = processor(Image.fromarray(draw(*size)), return_tensors="pt")["pixel_values"]
        row = model.get_image_features(pixel_values=pixels)
        row = getattr(row, "pooler_output", row)
        prompts.append(dict(placed_token_ids=[], token_ids=[0], images=[index],
                            rows=rounded(normalized(row))))  # fmt: skip
    return prompts


def towers(name, model, processor, words, seed, **padding):
    randomize(model, seed)
    with torch.no_grad():
        texts = []
        for text in TEXTS:
            ids = words(text, return_tensors="pt", **padding)["input_ids"]
            row = model.get_text_features(input_ids=ids)
            row = getattr(row, "pooler_output", row)
            texts.append(dict(text=text, token_ids=ids[0].tolist(), rows=rounded(normalized(row))))
        prompts = images_of(model, processor)
    images = [dict(height=height, width=width) for height, width in SIZES]
    golden = dict(task="embed", images=images, texts=texts, prompts=prompts)
    save(name, model, processor, words, golden)


def clip(name, seed, projection_dim, text, vision, side):
    ids = dict(bos_token_id=1, eos_token_id=0, pad_token_id=2, vocab_size=512)
    text = dict(max_position_embeddings=77, hidden_size=32, intermediate_size=48) | ids | text
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=projection_dim)
    processor = CLIPImageProcessor(size=dict(shortest_edge=side), crop_size=side)
    words = tokenizer("<|im_start|> $A <|endoftext|>")
    towers(name, CLIPModel(config), processor, words, seed)


def siglip(name, seed, text, vision, side):
    ids = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, vocab_size=512)
    text = dict(max_position_embeddings=64, hidden_size=32, intermediate_size=48) | ids | text
    config = SiglipConfig(text_config=text, vision_config=vision)
    processor = SiglipImageProcessor(size=dict(height=side, width=side))
    words = tokenizer("$A <|im_end|>")
    padding = dict(padding="max_length", max_length=text["max_position_embeddings"])
    towers(name, SiglipModel(config), processor, words, seed, **padding)


def of_sentences(name, from_name):
    """A model of two towers as sentence-transformers saves it, with the vectors that it computes."""
    from_folder, folder = OUT / from_name, OUT / name
    model = SentenceTransformer(str(from_folder), model_kwargs=dict(dtype=torch.float32))
    model.eval()
    shutil.rmtree(folder, ignore_errors=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    model.save(str(folder), create_model_card=False)
    model = SentenceTransformer(str(folder), model_kwargs=dict(dtype=torch.float32))
    known = json.loads((from_folder / "golden.json").read_text())

    def vector(item):
        return [[float(f"{x:.7g}") for x in model.encode(item).tolist()]]

    for text in known["texts"]:
        text["rows"] = vector(text["text"])
    for prompt in known["prompts"]:
        [index] = prompt["images"]
        prompt["rows"] = vector(Image.fromarray(draw(*SIZES[index])))
    (folder / "golden.json").write_text(json.dumps(known) + "\n")


def placed(prompt, images, token):
    """Returns the tokens of a prompt with one placeholder for each image."""
    tokens, rest = [], list(prompt["token_ids"])
    waiting = [images[index]["tokens"] for index in prompt["images"]]
    while rest:
        if waiting and rest[: len(waiting[0])] == waiting[0]:
            rest = rest[len(waiting.pop(0)) :]
            tokens.append(token)
        else:
            tokens.append(rest.pop(0))
    assert not waiting
    return tokens


def of_vision(name, model_name, task, rows_of, **settings):
    """Records what `rows_of` makes of the last states and the logits of a model's prompts."""
    folder = VISION / model_name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    known = json.loads((folder / "golden.json").read_text())
    images = [dict(height=image["height"], width=image["width"]) for image in known["images"]]
    prompts = []
    for prompt in known["prompts"]:
        ids = torch.tensor([prompt["token_ids"]])
        drawn = [images[index] for index in prompt["images"]]
        drawn = [Image.fromarray(draw(image["height"], image["width"])) for image in drawn]
        inputs = inputs_of(model, processor, drawn) if drawn else {}
        if hasattr(model.model, "get_rope_index"):
            inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
        with torch.no_grad():
            result = model(input_ids=ids, use_cache=False, output_hidden_states=True, **inputs)
        rows = rows_of(result.hidden_states[-1][0], result.logits[0])
        token = model.config.image_token_id
        prompts.append(dict(
            placed_token_ids=placed(prompt, known["images"], token),
            token_ids=prompt["token_ids"], images=prompt["images"], rows=rounded(rows),
        ))  # fmt: skip
    golden = dict(
        model=f"tests/fidelity/vision/{model_name}", task=task, settings=settings, images=images,
        texts=[], prompts=prompts,
    )  # fmt: skip
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / "golden.json").write_text(json.dumps(golden) + "\n")


def last(states, logits):
    return normalized(states[-1:])


def of_tokens(states, logits):
    return normalized(states)


def reranker(name, model_name, architecture, words):
    words = dict(zip(words, [tokenizer_of(model_name).convert_tokens_to_ids(w) for w in words]))
    no, yes = words.values()
    overrides = {
        "architectures": [architecture],
        "classifier_from_token": list(words),
        "is_original_qwen3_reranker": True,
    }

    def score(states, logits):
        return torch.sigmoid(logits[-1:, yes] - logits[-1:, no])[None]

    of_vision(name, model_name, "classify", score, hf_overrides=overrides)


def modernvbert(inner):
    """ModernVBERT with the images of an Idefics 3."""
    vision = inner.vision_config
    sizes = [
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "image_size", "patch_size",
    ]  # fmt: skip
    text = ModernBertConfig(
        vocab_size=inner.text_config.vocab_size, hidden_size=32, intermediate_size=48,
        num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=512,
        local_attention=16, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2,
        eos_token_id=3,
    )  # fmt: skip
    return ModernVBertConfig(
        text_config=text,
        vision_config=SiglipVisionConfig(**{field: getattr(vision, field) for field in sizes}),
        image_token_id=inner.image_token_id,
        pixel_shuffle_factor=inner.scale_factor,
    )


def late_interaction(name, model_name, seed):
    """ColQwen2 or ColPali over a model of `make_vision.py`. Positions are those of text, also in
    images. All tokens of ColPali's prompts are the prefix of PaliGemma, as its processor says."""
    inner, pixels = models()[model_name]()
    is_pali = model_name == "paligemma"
    is_modern = model_name == "idefics3"
    kind, config = ColQwen2ForRetrieval, ColQwen2Config
    if is_pali:
        kind, config = ColPaliForRetrieval, ColPaliConfig
    if is_modern:
        kind, config, inner = ColModernVBertForRetrieval, ColModernVBertConfig, modernvbert(inner)
    model = kind(config(vlm_config=inner, embedding_dim=20))
    randomize(model, seed)
    folder, from_folder = OUT / name, VISION / model_name
    shutil.rmtree(folder, ignore_errors=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    model.save_pretrained(folder)
    if is_modern:
        tagged_tokenizer().save_pretrained(folder)
    else:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(from_folder / file, folder / file)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(pixels, indent=2, sort_keys=True) + "\n")
    model = model.float().eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    known = json.loads((from_folder / "golden.json").read_text())
    images = [dict(height=image["height"], width=image["width"]) for image in known["images"]]
    prompts = []
    for prompt in known["prompts"][:2]:
        ids = torch.tensor([prompt["token_ids"]])
        inputs = {}
        if prompt["images"]:
            [index] = prompt["images"]
            image = Image.fromarray(draw(images[index]["height"], images[index]["width"]))
            inputs = dict(processor(image, return_tensors="pt"))
            if not is_pali and not is_modern:
                inputs["pixel_values"] = inputs["pixel_values"][None]
        if is_pali:
            inputs["token_type_ids"] = torch.zeros_like(ids)
        with torch.no_grad():
            rows = model(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs).embeddings[0]
        prompts.append(dict(
            placed_token_ids=prompt["placed_token_ids"] if "placed_token_ids" in prompt
            else placed(prompt, known["images"], inner.image_token_id),
            token_ids=prompt["token_ids"], images=prompt["images"], rows=rounded(rows),
        ))  # fmt: skip
    golden = dict(task="token_embed", images=images, texts=[], prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def of_authors(name, model_name, seed, place, projection, architecture, **fields):
    """A model of `make_vision.py` with a projection of each token, as the code of authors has it:
    the last states of transformers, and torch's formulas. `place` begins the names of its modules,
    and `projection` is the module, with a bias or without one."""
    inner, pixels = models()[model_name]()
    whole = randomize(AutoModelForImageTextToText.from_config(inner), seed).float().eval()
    module, has_bias = projection
    layer = randomize(torch.nn.Linear(inner.text_config.hidden_size, 20, bias=has_bias), seed + 1)
    folder, from_folder = OUT / name, VISION / model_name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = {place + key: value for key, value in whole.model.state_dict().items()}
    state |= {f"{module}.{key}": value for key, value in layer.state_dict().items()}
    state = {key: value.to(torch.bfloat16).contiguous() for key, value in state.items()}
    save_file(state, folder / "model.safetensors")
    config = inner.to_dict() | dict(architectures=[architecture], dtype="bfloat16") | fields
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(from_folder / file, folder / file)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(pixels, indent=2, sort_keys=True) + "\n")
    processor = AutoImageProcessor.from_pretrained(folder)
    known = json.loads((from_folder / "golden.json").read_text())
    images = [dict(height=image["height"], width=image["width"]) for image in known["images"]]
    prompts = []
    for prompt in known["prompts"][:2]:
        ids = torch.tensor([prompt["token_ids"]])
        drawn = [images[index] for index in prompt["images"]]
        drawn = [Image.fromarray(draw(image["height"], image["width"])) for image in drawn]
        inputs = inputs_of(whole, processor, drawn) if drawn else {}
        inputs["mm_token_type_ids"] = (ids == inner.image_token_id).int()
        with torch.no_grad():
            states = whole.model(input_ids=ids, use_cache=False, **inputs).last_hidden_state[0]
            rows = normalized(layer(states))
        prompts.append(dict(
            placed_token_ids=placed(prompt, known["images"], inner.image_token_id),
            token_ids=prompt["token_ids"], images=prompt["images"], rows=rounded(rows),
        ))  # fmt: skip
    golden = dict(task="token_embed", images=images, texts=[], prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def nemotron_col_embed(name, model_name, seed, **fields):
    """`Qwen3VLNemotronEmbedModel` by the formulas of its authors: a Qwen3-VL of `make_vision.py`
    with attention to both sides. The vectors are the states behind the last layer, without the last
    norm."""
    inner, pixels = models()[model_name]()
    inner.text_config.is_causal = False
    build = AutoModelForImageTextToText.from_config
    whole = randomize(build(inner, attn_implementation="eager"), seed).float().eval()
    folder, from_folder = OUT / name, VISION / model_name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = whole.state_dict()
    if inner.tie_word_embeddings:
        del state["lm_head.weight"]
    state = {key: value.to(torch.bfloat16).contiguous() for key, value in state.items()}
    save_file(state, folder / "model.safetensors")
    config = inner.to_dict() | dict(
        architectures=["Qwen3VLNemotronEmbedModel"], model_type="qwen3_vl_nemotron_embed",
        dtype="bfloat16",
    ) | fields  # fmt: skip
    # The authors' class has no such field.
    config["text_config"].pop("is_causal")
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(from_folder / file, folder / file)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(pixels, indent=2, sort_keys=True) + "\n")
    processor = AutoImageProcessor.from_pretrained(folder)
    known = json.loads((from_folder / "golden.json").read_text())
    images = [dict(height=image["height"], width=image["width"]) for image in known["images"]]

    def states(tokens, inputs):
        ids = torch.tensor([tokens])
        inputs = inputs | dict(mm_token_type_ids=(ids == inner.image_token_id).int())
        return whole.model(input_ids=ids, use_cache=False, **inputs).last_hidden_state[0]

    prompts = []
    for prompt in known["prompts"][:2]:
        drawn = [images[index] for index in prompt["images"]]
        drawn = [Image.fromarray(draw(image["height"], image["width"])) for image in drawn]
        inputs = inputs_of(whole, processor, drawn) if drawn else {}
        last_norm = whole.model.language_model.norm
        with torch.no_grad():
            normed = normalized(states(prompt["token_ids"], inputs))
            whole.model.language_model.norm = torch.nn.Identity()
            rows = normalized(states(prompt["token_ids"], inputs))
            inner.text_config.is_causal = True
            causal = normalized(states(prompt["token_ids"], inputs))
            inner.text_config.is_causal = False
        whole.model.language_model.norm = last_norm
        # The test sees a last norm, and a mask.
        assert min((rows - other).abs().max() for other in (normed, causal)) > 0.01
        prompts.append(dict(
            placed_token_ids=placed(prompt, known["images"], inner.image_token_id),
            token_ids=prompt["token_ids"], images=prompt["images"], rows=rounded(rows),
        ))  # fmt: skip
    golden = dict(task="token_embed", images=images, texts=[], prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


# The token behind a pair of jina-reranker-m0, the mean of its logits, and how it writes a pair.
SCORE_TOKEN, RANKER_MEAN = 100, 2.65
RANKER_PAIR = "**Document**:\n{document}\n**Query**:\n{query}"


def with_head(name, model_name, seed, head, kind, architecture, answer, end=(), labels=None):
    """A model of `make_vision.py` with `head` over the last token. `answer` makes its result."""
    config, pixels = models()[model_name]()
    model = randomize(kind(config), seed)
    randomize(head, seed + 1)
    folder, from_folder = OUT / name, VISION / model_name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = {key: value.to(torch.bfloat16) for key, value in model.state_dict().items()}
    state |= {f"score.{key}": value.to(torch.bfloat16) for key, value in head.state_dict().items()}
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    save_file({key: value.contiguous() for key, value in state.items()}, folder / "model.safetensors")
    fields = config.to_dict() | dict(architectures=[architecture], dtype="bfloat16")
    if labels:
        fields["id2label"] = {str(index): label for index, label in enumerate(labels)}
        fields["label2id"] = {label: index for index, label in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(fields, indent=2, default=str) + "\n")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(from_folder / file, folder / file)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(pixels, indent=2, sort_keys=True) + "\n")
    processor = AutoImageProcessor.from_pretrained(folder)
    known = json.loads((from_folder / "golden.json").read_text())
    images = [dict(height=image["height"], width=image["width"]) for image in known["images"]]

    def row(tokens, inputs):
        ids = torch.tensor([tokens])
        inputs["mm_token_type_ids"] = (ids == config.image_token_id).int()
        with torch.no_grad():
            states = model.model(input_ids=ids, use_cache=False, **inputs).last_hidden_state[0]
            return answer(head(states[-1]))[None]

    prompts = []
    for prompt in known["prompts"]:
        drawn = [images[index] for index in prompt["images"]]
        drawn = [Image.fromarray(draw(image["height"], image["width"])) for image in drawn]
        inputs = inputs_of(model, processor, drawn) if drawn else {}
        tokens = prompt["token_ids"] + list(end)
        prompts.append(dict(
            placed_token_ids=placed(prompt, known["images"], config.image_token_id) + list(end),
            token_ids=tokens, images=prompt["images"], rows=rounded(row(tokens, inputs)),
        ))  # fmt: skip
    return dict(task="classify", images=images, texts=[], prompts=prompts), row


def ranker(name, model_name, kind, seed):
    """`JinaVLForRanking`, by the formulas of its authors: two layers over the last token."""
    layers = [torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)]
    golden, row = with_head(
        name, model_name, seed, torch.nn.Sequential(*layers), kind, "JinaVLForRanking",
        lambda logits: torch.sigmoid(logits - RANKER_MEAN), end=[SCORE_TOKEN],
    )  # fmt: skip
    words = tokenizer_of(model_name)
    golden["pairs"] = []
    for text in TEXTS[:3]:
        tokens = words(RANKER_PAIR.format(document=text, query="two kettles"))["input_ids"]
        score = row(tokens + [SCORE_TOKEN], {}).item()
        golden["pairs"].append(dict(text_1="two kettles", text_2=text, score=score))
    (OUT / name / "golden.json").write_text(json.dumps(golden) + "\n")


def classes(name, model_name, kind, seed):
    """A classifier of the last token, as vLLM makes it of a class with images."""
    architecture = kind.__name__.replace("ConditionalGeneration", "SequenceClassification")
    head = torch.nn.Linear(32, 3, bias=False)
    golden, _ = with_head(
        name, model_name, seed, head, kind, architecture, lambda logits: logits.softmax(-1),
        labels=["page", "photo", "plot"],
    )  # fmt: skip
    (OUT / name / "golden.json").write_text(json.dumps(golden) + "\n")


def tokenizer_of(model_name):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(VISION / model_name)


SMALL = dict(hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2)
PICTURES = dict(image_size=28, patch_size=14)
MAKERS = {
    "clip": lambda n: clip(
        n, 1, 16, dict(num_hidden_layers=2, num_attention_heads=4), SMALL | PICTURES, 28
    ),
    # Vectors are wider than the text tower.
    "clip-wide": lambda n: clip(
        n, 2, 48,
        dict(
            num_hidden_layers=3, num_attention_heads=2, hidden_act="gelu", layer_norm_eps=1e-4,
            max_position_embeddings=50,
        ),
        SMALL | dict(
            image_size=32, patch_size=8, hidden_act="gelu", layer_norm_eps=1e-6,
            num_hidden_layers=3, num_attention_heads=3,
        ),
        32,
    ),  # fmt: skip
    "siglip": lambda n: siglip(
        n, 3, dict(num_hidden_layers=2, num_attention_heads=4),
        SMALL | PICTURES | dict(hidden_size=32), 28,
    ),  # fmt: skip
    "siglip-narrow": lambda n: siglip(
        n, 4,
        dict(
            num_hidden_layers=3, num_attention_heads=2, projection_size=24, hidden_act="gelu",
            layer_norm_eps=1e-4, max_position_embeddings=50,
        ),
        SMALL | dict(image_size=36, patch_size=8, hidden_act="gelu", num_attention_heads=4), 36,
    ),  # fmt: skip
    "qwen2_vl-last": lambda n: of_vision(n, "qwen2_vl", "embed", last),
    "qwen2_5_vl-last": lambda n: of_vision(n, "qwen2_5_vl", "embed", last),
    "qwen3_vl-last": lambda n: of_vision(n, "qwen3_vl", "embed", last),
    "llava_next-last": lambda n: of_vision(n, "llava_next", "embed", last),
    "qwen3_vl-tokens": lambda n: of_vision(n, "qwen3_vl-one", "token_embed", of_tokens),
    "qwen3_vl-reranker": lambda n: reranker(
        n, "qwen3_vl", "Qwen3VLForSequenceClassification", ["a", "b"]
    ),
    "qwen2_vl-reranker": lambda n: reranker(
        n, "qwen2_vl", "Qwen2VLForSequenceClassification", ["c", "d"]
    ),
    "colqwen2": lambda n: late_interaction(n, "qwen2_vl", 5),
    "clip-sentences": lambda n: of_sentences(n, "clip"),
    "jina-ranker": lambda n: ranker(n, "qwen2_vl", Qwen2VLForConditionalGeneration, 7),
    "qwen2_5_vl-classes": lambda n: classes(
        n, "qwen2_5_vl", Qwen2_5_VLForConditionalGeneration, 8
    ),
    "colqwen2_5": lambda n: late_interaction(n, "qwen2_5_vl", 6),
    "colpali": lambda n: late_interaction(n, "paligemma", 9),
    "colmodernvbert": lambda n: late_interaction(n, "idefics3", 16),
    # The names of TomoroAI's checkpoints, and of OpenSearch-AI's.
    "colqwen3": lambda n: of_authors(
        n, "qwen3_vl", 10, "vlm.model.", ("embedding_proj_layer", True), "ColQwen3",
        model_type="colqwen3", embed_dim=20,
    ),
    "colqwen3-ops": lambda n: of_authors(
        n, "qwen3_vl-one", 12, "", ("custom_text_proj", False), "OpsColQwen3Model",
        model_type="ops_colqwen3", dims=20,
    ),
    "colqwen3_5": lambda n: of_authors(
        n, "qwen3_5", 14, "", ("custom_text_proj", True), "ColQwen3_5",
        retrieval_attention_contract="causal", dim=20,
    ),
    "nemotron_col_embed": lambda n: nemotron_col_embed(n, "qwen3_vl", 18, pooling="colbert"),
    "nemotron_col_embed-one": lambda n: nemotron_col_embed(n, "qwen3_vl-one", 20),
}


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(MAKERS):
        MAKERS[name](name)
        print(name)


if __name__ == "__main__":
    main()
