"""Builds multimodal models that only pool, and records Hugging Face transformers' answers.

    python tests/fidelity/make_embedders.py               # all of them, into tests/fidelity/pictures
    python tests/fidelity/make_embedders.py colultravbert # some of them

Each folder is as `make_pictures.py` writes it: models of ModernVBERT whose config has the form of its
authors, of UltraVBERT, and of EmbeddingGemma 2.

Needs what `make_pictures.py` needs. Nothing is downloaded.
"""

import json
import shutil
import sys

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    AutoImageProcessor,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    EmbeddingGemma2Config,
    EmbeddingGemma2Model,
    Idefics3Processor,
    SiglipVisionConfig,
    UltrabertConfig,
    UltraVBertConfig,
    UltraVBertModel,
)

import make_gemma4
from make_pictures import OUT, SIZES, modernvbert, normalized, randomize, rounded
from make_vision import draw, models, tokens_of
from make_vision import tokenizer as tagged_tokenizer

# The images of each prompt.
PROMPTS = ([], [1], [3, 4])


def write(name, tensors, config, pixels, words=tagged_tokenizer):
    """Writes a folder. Returns it with its image processor, if it has one."""
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stored = {key: value.to(torch.bfloat16).contiguous() for key, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata=dict(format="pt"))
    config = {key: value for key, value in config.items() if value is not None}
    text = json.dumps(config, indent=2, default=str, sort_keys=True)
    (folder / "config.json").write_text(text + "\n")
    words().save_pretrained(folder)
    if pixels is None:
        return folder, None
    text = json.dumps(pixels, indent=2, sort_keys=True)
    (folder / "preprocessor_config.json").write_text(text + "\n")
    return folder, AutoImageProcessor.from_pretrained(folder)


def of_idefics3(processor, image_token, count):
    """Returns a function from an image to its tokens, and one from images to the model's inputs. An
    image of one tile has `count` embeddings."""
    whole = Idefics3Processor(processor, tagged_tokenizer(), count)

    def inputs(drawn):
        made = processor([drawn], return_tensors="pt")
        return {key: value for key, value in made.items() if key.startswith("pixel")}

    return lambda image: tokens_of(whole, image, count, image_token), inputs


def prompts_of(image_token, kinds, rows_of, of_image=None, inputs_of=None):
    """Returns prompts of text and images with their rows. `kinds` has the images of each prompt."""
    generator = torch.Generator().manual_seed(1)
    prompts = []
    for images in kinds:
        text = lambda length: torch.randint(5, 400, (length,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in images:
            after = text(4)
            tokens += of_image(Image.fromarray(draw(*SIZES[index]))) + after
            placed += [image_token] + after
        drawn = [Image.fromarray(draw(*SIZES[index])) for index in images]
        inputs = inputs_of(drawn) if drawn else {}
        ids = torch.tensor([tokens])
        with torch.no_grad():
            rows = rows_of(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs)
        prompts.append(dict(
            placed_token_ids=placed, token_ids=tokens, images=images, rows=rounded(rows),
        ))  # fmt: skip
    return prompts


def text_of(rows_of, marks, length):
    """Returns a prompt of text with tokens of media in it."""
    generator = torch.Generator().manual_seed(length + len(marks))
    text = lambda: torch.randint(5, 400, (length,), generator=generator).tolist()
    tokens = text() + marks + text()
    ids = torch.tensor([tokens])
    with torch.no_grad():
        rows = rows_of(input_ids=ids, attention_mask=torch.ones_like(ids))
    return dict(placed_token_ids=tokens, token_ids=tokens, images=[], rows=rounded(rows))


def record(folder, task, prompts):
    images = [dict(height=height, width=width) for height, width in SIZES]
    golden = dict(task=task, images=images, texts=[], prompts=prompts)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def of_modern_authors(name, seed, architectures, vision, **text):
    """ColModernVBERT with the names and the fields of its authors, whose config may name no class."""
    inner, pixels = models()["idefics3"]()
    inner = modernvbert(inner)
    for field, value in text.items():
        setattr(inner.text_config, field, value)
    for field, value in vision.items():
        setattr(inner.vision_config, field, value)
    config = ColModernVBertConfig(vlm_config=inner, embedding_dim=20)
    model = randomize(ColModernVBertForRetrieval(config), seed)
    tensors = {}
    for key, value in model.state_dict().items():
        key = key.replace("embedding_proj_layer", "model.custom_text_proj")
        key = key.replace("vlm.vision_model.", "model.vision_model.vision_model.")
        tensors[key.replace("vlm.", "model.")] = value
    fields = inner.to_dict() | dict(
        architectures=architectures, dtype="bfloat16", embedding_dim=20,
    )  # fmt: skip
    folder, processor = write(name, tensors, fields, pixels)
    model = model.float().eval()
    tower = inner.vision_config
    count = (tower.image_size // tower.patch_size // inner.pixel_shuffle_factor) ** 2
    rows_of = lambda **inputs: model(**inputs).embeddings[0]
    token = inner.image_token_id
    prompts = prompts_of(token, PROMPTS, rows_of, *of_idefics3(processor, token, count))
    record(folder, "token_embed", prompts)


def ultravbert(name, seed, fields, rename, pixels, task="token_embed", vision=None, text=None):
    """UltraVBERT. `fields` are those beside its parts, and `rename` changes the names of tensors.
    Without `connector_norm`, the norm behind the connector is left out, as in vLLM's class."""
    inner, own = models()["idefics3"]()
    text = text or {}
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=32, patch_size=8, vision_use_head=False,
    )  # fmt: skip
    text_config = UltrabertConfig(**dict(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=512, sliding_window=9, pad_token_id=0,
        bos_token_id=2, eos_token_id=3,
    ) | text)  # fmt: skip
    config = UltraVBertConfig(
        text_config=text_config, vision_config=SiglipVisionConfig(**tower | (vision or {})),
        image_token_id=inner.image_token_id, pixel_shuffle_factor=2,
    )  # fmt: skip
    model = randomize(UltraVBertModel(config), seed)
    tensors = model.state_dict()
    if not fields.get("connector_norm", True):
        model.connector.norm = torch.nn.Identity()
        del tensors["connector.norm.weight"]
    tensors = {rename(key): value for key, value in tensors.items()}
    outer = config.to_dict() | dict(architectures=None, dtype="bfloat16") | fields
    older = {field: text[field] for field in ("attention_windows", "rope_theta") if field in text}
    if older:
        outer["text_config"] |= older | dict(rope_parameters=None, layer_types=None)
        outer["text_config"]["sliding_window"] = 128
    folder, processor = write(name, tensors, outer, own | pixels)
    model = model.float().eval()
    states = lambda **inputs: model(**inputs).last_hidden_state[0]
    # Vectors of texts are those of the first token.
    rows = slice(None) if task == "token_embed" else slice(1)
    rows_of = lambda **inputs: normalized(states(**inputs)[rows])
    side = config.vision_config.image_size // config.vision_config.patch_size
    count = (side // config.pixel_shuffle_factor) ** 2
    token = config.image_token_id
    prompts = prompts_of(token, PROMPTS, rows_of, *of_idefics3(processor, token, count))
    record(folder, task, prompts)


def embedding_gemma2(name, seed, task, text, vision=None, pixels=None):
    """EmbeddingGemma 2. Without `vision`, it has no tower. The vector of a text is the mean of its
    tokens', and the config of some checkpoints names no class."""
    words = make_gemma4.tokenizer()
    token = lambda tag: words.convert_tokens_to_ids(make_gemma4.TAGS[tag])
    tower = dict(
        model_type="gemma4_vision", hidden_size=24, intermediate_size=36, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=2,
        pooling_kernel_size=3, position_embedding_size=216,
    )  # fmt: skip
    text = dict(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
        hidden_size_per_layer_input=6, embedding_dim=20, pad_token_id=0, bos_token_id=2,
        eos_token_id=3,
    ) | text  # fmt: skip
    config = EmbeddingGemma2Config(
        text_config=text, vision_config=tower | vision if vision is not None else None,
        image_token_id=token("image_token"), boi_token_id=token("boi_token"),
        eoi_token_id=token("eoi_token"), audio_token_id=token("audio_token"),
        boa_token_id=token("boa_token"), eoa_token_index=token("eoa_token"),
        video_token_id=words.convert_tokens_to_ids(make_gemma4.VIDEO_TAG),
    )  # fmt: skip
    model = randomize(EmbeddingGemma2Model(config), seed)
    with torch.no_grad():
        make_gemma4.with_buffers(model, seed)
        # Those that are stored have values that bfloat16 has.
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.to(torch.bfloat16))
    if vision is not None:
        sizes = dict(
            patch_size=config.vision_config.patch_size, max_soft_tokens=70,
            pooling_kernel_size=config.vision_config.pooling_kernel_size,
        )  # fmt: skip
        pixels = sizes | dict(image_processor_type="Gemma4ImageProcessor") | pixels
    outer = config.to_dict() | dict(architectures=["EmbeddingGemma2Model"], dtype="bfloat16")
    folder, processor = write(name, model.state_dict(), outer, pixels, make_gemma4.tokenizer)
    model = model.float().eval()

    def rows_of(attention_mask, **inputs):
        states = model(attention_mask=attention_mask, **inputs).last_hidden_state[0]
        return normalized(states if task == "token_embed" else states.mean(dim=0, keepdim=True))

    def inputs_of(drawn):
        made = processor(drawn, return_tensors="pt")
        return {key: made[key] for key in ("pixel_values", "image_position_ids")}

    def of_image(image):
        made = processor([image], return_tensors="pt")
        count = int(made["num_soft_tokens_per_image"][0])
        return [config.boi_token_id] + [config.image_token_id] * count + [config.eoi_token_id]

    image_token = config.image_token_id
    if vision is not None:
        prompts = prompts_of(image_token, PROMPTS, rows_of, of_image, inputs_of)
    else:
        # A token of media has the embedding of the padding.
        prompts = [text_of(rows_of, [image_token] * marks, 20) for marks in range(3)]
    record(folder, task, prompts)


def as_saved(key):
    return key


def of_older(key):
    """The name in checkpoints of transformers 5.9 and earlier."""
    return key.replace("vision_model.", "vision_model.vision_model.", 1)


ULTRA_PIXELS = dict(image_processor_type="UltraVBertImageProcessor", max_image_tiles=4)
MAKERS = {
    # As published: the config names no class.
    "modernvbert": lambda n: of_modern_authors(n, 17, None, {}),
    "modernvbert-class": lambda n: of_modern_authors(
        n, 18, ["ModernVBertModel"], dict(layer_norm_eps=1e-3, hidden_act="gelu"),
        norm_eps=1e-3, local_attention=8,
    ),  # fmt: skip
    "colultravbert": lambda n: ultravbert(
        n, 19, dict(architectures=["ColUltraVBertForRetrieval"]), as_saved, ULTRA_PIXELS,
        text=dict(num_key_value_heads=2),
    ),  # fmt: skip
    # As vLLM reads older checkpoints: without a norm behind the connector, and with a limit of tiles
    # in the file of another class of processors, which is larger here than any image. No class is
    # named.
    "colultravbert-older": lambda n: ultravbert(
        n, 20, dict(connector_norm=False), of_older, dict(max_image_tiles=9),
        vision=dict(num_attention_heads=3, layer_norm_eps=1e-3),
        text=dict(rms_norm_eps=1e-3, layer_types=["full_attention", "sliding_attention"] * 2),
    ),  # fmt: skip
    "ultravbert": lambda n: ultravbert(
        n, 21, dict(architectures=["UltraVBertModel"]), as_saved,
        dict(image_processor_type="UltraVBertImageProcessor", max_image_tiles=2), task="embed",
        text=dict(rms_norm_eps=1e-2, attention_bias=True, mlp_bias=True),
    ),  # fmt: skip
    # The text model's fields are those of the first checkpoints of UltraBERT.
    "ultravbert-tokens": lambda n: ultravbert(
        n, 25, dict(architectures=["UltraVBertModel"]), as_saved, dict(do_image_splitting=False),
        vision=dict(hidden_act="gelu"),
        text=dict(
            attention_windows=[0, 7, 7, 0], rope_theta=[5_000.0, 200.0, 200.0, 5_000.0],
            hidden_act="gelu", head_dim=12,
        ),
    ),  # fmt: skip
    "embedding_gemma2": lambda n: embedding_gemma2(
        n, 22, "embed",
        dict(
            sliding_window=9, layer_types=["sliding_attention", "full_attention"] * 2,
            global_head_dim=16, num_global_key_value_heads=1,
        ),
        dict(use_clipped_linears=True, rms_norm_eps=1e-4), dict(do_normalize=False),
    ),  # fmt: skip
    # Heads of one width, and parameters of rotary embeddings.
    "embedding_gemma2-tokens": lambda n: embedding_gemma2(
        n, 23, "token_embed",
        dict(
            sliding_window=5, sliding_window_pattern=2, num_hidden_layers=3, attention_bias=True,
            global_head_dim=8, num_global_key_value_heads=4, rms_norm_eps=1e-3,
            hidden_activation="silu", embedding_dim=40,
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=300.0),
                full_attention=dict(
                    rope_type="proportional", partial_rotary_factor=0.5, rope_theta=7_000.0,
                ),
            ),
        ),
        dict(standardize=True, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
             patch_size=3, pooling_kernel_size=2, position_embedding_size=140),
        dict(resample=2),
    ),  # fmt: skip
    # Text alone.
    "embedding_gemma2-text": lambda n: embedding_gemma2(
        n, 24, "embed",
        dict(sliding_window=3, num_hidden_layers=6, global_head_dim=12, head_dim=16),
    ),  # fmt: skip
}


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or list(MAKERS):
        MAKERS[name](name)
        print(name)


if __name__ == "__main__":
    main()
