"""Builds the models of the vision tests and records Hugging Face transformers' answers.

    python tests/fidelity/make_vision.py              # all of them, into tests/fidelity/vision
    python tests/fidelity/make_vision.py qwen3_vl     # some of them
    python tests/fidelity/make_vision.py --record DIR # only the answers, of the model in a folder
    python tests/fidelity/make_vision.py --videos     # only those about videos, of models for them
    python tests/fidelity/make_vision.py --crops      # only those about pan and scan of Gemma 3,
                                                      # and about tiles of LFM2-VL and MiniCPM-V

Each model is a folder with seeded random weights and the config of its image processor, plus
`golden.json`: images that a formula draws, as the processor leaves them (bytes before they are
rescaled), their embeddings, and prompts with images: token ids, positions, and log-probabilities
after the last token, in float32.

Needs: torch, torchvision, transformers >= 5, safetensors. Nothing is downloaded.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText
from transformers import (
    AyaVisionConfig,
    AyaVisionProcessor,
    Blip2Config,
    Cohere2VisionConfig,
    Cohere2VisionProcessor,
    Exaone4_5_Config,
    Gemma3Config,
    Gemma3Processor,
    Glm4vConfig,
    Glm4vMoeConfig,
    Glm4vProcessor,
    Glm4vVideoProcessor,
    Glm46VProcessor,
    Glm46VVideoProcessor,
    GlmOcrConfig,
    GotOcr2Config,
    Idefics3Config,
    Idefics3Processor,
    InternVLConfig,
    InternVLProcessor,
    InternVLVideoProcessor,
    Lfm2VlConfig,
    Lfm2VlProcessor,
    LightOnOcrConfig,
    LightOnOcrProcessor,
    Llama4Config,
    Llama4Processor,
    LlavaConfig,
    LlavaNextConfig,
    LlavaNextVideoConfig,
    LlavaNextVideoProcessor,
    LlavaNextVideoVideoProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    MiniCPMV4_6Config,
    MiniCPMV4_6Processor,
    MiniCPMV4_6VideoProcessor,
    Mistral3Config,
    Ovis2Config,
    Ovis2Processor,
    PaddleOCRVLConfig,
    PaliGemmaConfig,
    PixtralProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3_5Config,
    Qwen4ExpConfig,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
)

from transformers.video_utils import VideoMetadata
from transformers.image_processing_utils import select_best_resolution

import wrappers
from corpus import train_tokenizer

HERE = Path(__file__).parent
# Height and width: square, odd, wide, tiny, and one that grows.
SIZES = [(56, 56), (61, 83), (40, 197), (5, 7), (120, 30)]
CLIP = dict(
    image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711]
)
UNIT = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def sizes_of(model):
    """Returns the sizes of images. HF `Mistral3Model` fails at images of one embedding, and
    `LightOnOcrModel` at those of none."""
    small = dict(mistral3=(5, 27), lighton_ocr=(13, 27)).get(model.config.model_type, (5, 7))
    return [small if size == (5, 7) else size for size in SIZES]


def draw(height, width):
    """Returns the image that `tests/fidelity/vision.rs` draws by the same formula."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((x * (c + 2) + y * 5 + (x * y) // 7 * (3 - c) + c * 40) % 256).astype(np.uint8)


def text_config(model_type, **changes):
    return dict(
        model_type=model_type, vocab_size=512, hidden_size=32, intermediate_size=48,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, initializer_range=0.2, bos_token_id=None, eos_token_id=2,
        pad_token_id=0, rms_norm_eps=1e-5,
    ) | changes


def axes(sections, **changes):
    parameters = dict(rope_type="default", rope_theta=10_000.0, mrope_section=sections)
    return dict(rope_parameters=parameters | changes)


QWEN = dict(
    image_token_id=508, video_token_id=509, vision_start_token_id=510, vision_end_token_id=511,
)
VISUAL = dict(depth=3, num_heads=2, hidden_size=24, intermediate_size=36, out_hidden_size=32)


def qwen(config, model_type, visual, processor, tied=False, **text):
    text = text_config(model_type, **text)
    config = config(text_config=text, vision_config=visual, tie_word_embeddings=tied, **QWEN)
    pixels = dict(image_processor_type="Qwen2VLImageProcessor", merge_size=2, temporal_patch_size=2)
    return config, pixels | processor


def llava(vision, processor, text="llama", image_token=509, **rest):
    config = LlavaConfig(
        text_config=text if isinstance(text, dict) else text_config(text), vision_config=vision,
        image_token_index=image_token, **dict(tie_word_embeddings=False) | rest,
    )
    return config, processor


def llava_next(vision, pinpoints, text="llama", vision_feature_layer=-2, **processor):
    config = LlavaNextConfig(
        text_config=text_config(text), vision_config=vision, image_token_index=509,
        tie_word_embeddings=False, image_grid_pinpoints=pinpoints,
        vision_feature_layer=vision_feature_layer,
    )
    pixels = dict(
        image_processor_type="LlavaNextImageProcessor", image_grid_pinpoints=pinpoints,
        crop_size=dict(height=42, width=42), resample=3, **CLIP,
    )
    return config, pixels | processor


def llava_next_video(vision, pinpoints, text="llama", **processor):
    """Returns a model of LLaVA-NeXT-Video, whose frames have an even number of patches."""
    config = LlavaNextVideoConfig(
        text_config=text_config(text), vision_config=vision, image_token_index=IMAGE_TOKEN,
        video_token_index=tokenizer().convert_tokens_to_ids("<video>"),
        tie_word_embeddings=False, image_grid_pinpoints=pinpoints,
    )
    side = vision["image_size"]
    pixels = dict(
        image_processor_type="LlavaNextImageProcessor", image_grid_pinpoints=pinpoints,
        size=dict(shortest_edge=side), crop_size=dict(height=side, width=side), resample=3, **CLIP,
    )
    return config, pixels | processor


def llava_onevision(side, tiles, text, **rest):
    """Returns a model of LLaVA-OneVision, whose tower has tiles of `side` pixels."""
    pinpoints = [[rows * side, columns * side] for rows, columns in tiles]
    vision = clip(
        model_type="siglip_vision_model", image_size=side, patch_size=7, vision_use_head=False,
    )
    config = LlavaOnevisionConfig(
        text_config=text, vision_config=vision, image_token_index=IMAGE_TOKEN,
        video_token_index=tokenizer().convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=pinpoints, **rest,
    )
    return config, dict(
        image_processor_type="LlavaOnevisionImageProcessor", image_grid_pinpoints=pinpoints,
        size=dict(height=side, width=side), resample=3, **UNIT,
    )


def granite_vision(text, **rest):
    """Text models of Granite keep `logits_scaling` at 1: transformers' class has an output layer of
    its own, which does not know the field. vLLM applies it, and so does Playhouse."""
    pinpoints = [[42, 84], [84, 42], [84, 84], [126, 42]]
    config = LlavaNextConfig(
        text_config=text, vision_config=siglip(), image_token_index=509,
        image_grid_pinpoints=pinpoints, vision_feature_select_strategy="full", **rest,
    )
    return config, dict(
        image_processor_type="LlavaNextImageProcessor", image_grid_pinpoints=pinpoints,
        size=dict(height=42, width=42), crop_size=dict(height=42, width=42), resample=3, **UNIT,
    )


def siglip():
    return clip(model_type="siglip_vision_model", patch_size=7, vision_use_head=False)


def clip(**changes):
    tower = dict(
        model_type="clip_vision_model", hidden_size=24, intermediate_size=36, num_hidden_layers=3,
        num_attention_heads=2, image_size=42, patch_size=14, projection_dim=16,
    )
    return tower | changes


def clip_processor(**changes):
    return dict(
        image_processor_type="CLIPImageProcessor", size=dict(shortest_edge=42),
        crop_size=dict(height=42, width=42), resample=3, **CLIP,
    ) | changes


# The tokens that processors put around embeddings, from this id on.
FIRST_TAG = 440
TAGS = ["<image>", "[IMG_BREAK]", "[IMG_END]", "<fake_token_around_image>", "<global-img>"]
TAGS += ["<img>", "</img>"] + [f"<row_{1 + at // 3}_col_{1 + at % 3}>" for at in range(9)]
# The two tokens around images of InternVL come first.
IMAGE_TOKEN = FIRST_TAG + 2


def tokenizer():
    """Returns a tokenizer of the corpus with the tags."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained),
        extra_special_tokens=dict(
            start_image_token="<img>", end_image_token="</img>", context_image_token="<image>",
            video_token="<video>",
        ),
    )
    whole.add_special_tokens(dict(additional_special_tokens=TAGS))
    assert whole.convert_tokens_to_ids("<image>") == IMAGE_TOKEN
    return whole


def pixtral_tower(**changes):
    tower = dict(
        model_type="pixtral", hidden_size=24, intermediate_size=36, num_hidden_layers=2,
        num_attention_heads=2, image_size=64, patch_size=8,
    )
    return tower | changes


def pixtral_processor(longest, side):
    return dict(
        image_processor_type="PixtralImageProcessor", size=dict(longest_edge=longest),
        patch_size=dict(height=side, width=side), **CLIP,
    )


def mistral3(vision, processor, text, **rest):
    config = Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=IMAGE_TOKEN,
        tie_word_embeddings=False, **rest,
    )
    return config, processor


def idefics3(config, side, longest, vision, scale_factor, **processor):
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=side, patch_size=8,
    )
    config = config(
        text_config=text_config("llama"), vision_config=tower | vision, scale_factor=scale_factor,
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )
    pixels = dict(
        image_processor_type="Idefics3ImageProcessor", size=dict(longest_edge=longest),
        max_image_size=dict(longest_edge=side), resample=1, **UNIT,
    )
    return config, pixels | processor


def internvl(text, vision, ratio, **processor):
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=[32, 32], patch_size=[8, 8], layer_scale_init_value=0.5,
    )
    config = InternVLConfig(
        text_config=text, vision_config=tower | vision, downsample_ratio=ratio,
        image_token_id=IMAGE_TOKEN, tie_word_embeddings=False,
    )
    pixels = dict(
        image_processor_type="GotOcr2ImageProcessor", size=dict(height=32, width=32),
        crop_to_patches=True, min_patches=1, max_patches=6, **CLIP,
    )
    return config, pixels | processor


# The tokens of line feeds, as the tokenizers of Gemma have them.
LINE_FEEDS = ["\n\n", "\n\n\n", "\n\n\n\n"]


def gemma_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of Gemma's images and line feeds."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained),
        extra_special_tokens=dict(
            boi_token="<start_of_image>", eoi_token="<end_of_image>",
            image_token="<image_soft_token>",
        ),
    )
    whole.add_tokens(LINE_FEEDS)
    return whole


def gemma3(vision, text, num_tokens, **processor):
    words, side = gemma_tokenizer(), vision["image_size"]
    token = lambda name: words.convert_tokens_to_ids(getattr(words, name))
    tower = dict(model_type="siglip_vision_model", vision_use_head=False)
    config = Gemma3Config(
        text_config=text_config("gemma3_text", **text), vision_config=clip(**tower | vision),
        mm_tokens_per_image=num_tokens, boi_token_index=token("boi_token"),
        eoi_token_index=token("eoi_token"), image_token_index=token("image_token"),
    )
    pixels = dict(
        image_processor_type="Gemma3ImageProcessor", size=dict(height=side, width=side), **UNIT,
    )
    return config, pixels | processor


def glm(config, text, visual, processor, **rest):
    """Returns a model of GLM-4.1V's classes. An image's tokens have no others around them."""
    tower = dict(
        depth=2, num_heads=2, hidden_size=24, out_hidden_size=32, intermediate_size=40,
        image_size=32, patch_size=8,
    )
    config = config(
        text_config=text, vision_config=tower | visual, image_token_id=508, video_token_id=509,
        image_start_token_id=504, image_end_token_id=505, video_start_token_id=506,
        video_end_token_id=507, **rest,
    )
    pixels = dict(
        image_processor_type="Glm4vImageProcessor", patch_size=8, merge_size=2,
        temporal_patch_size=2, **CLIP,
    )
    return config, pixels | processor


LLAMA4_TAGS = ["image_start", "image", "patch", "tile_x_separator", "tile_y_separator", "image_end"]
LLAMA4_TAGS = [f"<|{name}|>" for name in LLAMA4_TAGS]


def llama4_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of Llama 4's images."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    whole.add_special_tokens(dict(additional_special_tokens=LLAMA4_TAGS))
    return whole


def llama4(visual, processor, **text):
    tower = dict(
        hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        image_size=32, patch_size=8, projector_input_dim=28, projector_output_dim=28,
        vision_output_dim=28,
    )
    tower |= visual
    config = Llama4Config(
        text_config=text_config(
            "llama4_text", num_local_experts=4, intermediate_size_mlp=40, attention_chunk_size=64,
            floor_scale=8, **text,
        ),
        vision_config=tower, image_token_index=llama4_tokenizer().convert_tokens_to_ids("<|patch|>"),
        tie_word_embeddings=False,
    )
    pixels = dict(
        image_processor_type="Llama4ImageProcessor", max_patches=6, **UNIT,
        size=dict(height=tower["image_size"], width=tower["image_size"]),
    )
    return config, pixels | processor


def lighton_ocr(vision, longest, patch_size, text, **rest):
    """Returns a model of LightOnOCR. Its image processor has a multiple of the tower's patches."""
    config = LightOnOcrConfig(
        text_config=text_config("qwen3", **text), vision_config=pixtral_tower(**vision),
        image_token_id=IMAGE_TOKEN, **rest,
    )
    return config, pixtral_processor(longest, patch_size)


def paddleocr_vl(vision, text, processor, **rest):
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=48, patch_size=8,
    )
    text = {"num_hidden_layers": 3, "head_dim": 8} | text
    config = PaddleOCRVLConfig(
        text_config=text_config("paddleocr_vl_text", **text), vision_config=tower | vision,
        image_token_id=508, video_token_id=509, vision_start_token_id=510,
        vision_end_token_id=511, **rest,
    )
    pixels = dict(
        image_processor_type="PaddleOCRVLImageProcessor", patch_size=8, merge_size=2,
        temporal_patch_size=1, size=dict(shortest_edge=1024, longest_edge=16 * 16 * 14), **UNIT,
    )
    return config, pixels | processor


def cohere_text(**changes):
    """Text models keep `logit_scale` at 1: transformers' multimodal classes have an output layer of
    their own, which does not know the field. vLLM applies it, and so does Playhouse."""
    return text_config("cohere2", logit_scale=1.0, head_dim=8, sliding_window=16) | changes


# The tokens of Cohere's images, and of the text between the tiles of Aya Vision.
COHERE_TAGS = ["<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>"]
COHERE_TAGS += ["<|IMG_LINE_BREAK|>"]
TILES = [f"TILE_{at}" for at in range(1, 10)] + ["TILE_GLOBAL"]


def cohere_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of Cohere's images."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained),
        extra_special_tokens=dict(
            boi_token="<|START_OF_IMG|>", eoi_token="<|END_OF_IMG|>",
            image_token="<|IMG_PATCH|>", img_line_break_token="<|IMG_LINE_BREAK|>",
        ),
    )
    whole.add_special_tokens(dict(additional_special_tokens=COHERE_TAGS[:1]))
    return whole


def cohere_vision(config, vision, text, factor, processor, **rest):
    tower = dict(model_type="siglip_vision_model", vision_use_head=False)
    vision = clip(**tower | vision)
    token = cohere_tokenizer().convert_tokens_to_ids("<|IMG_PATCH|>")
    name = "image_token_index" if config is AyaVisionConfig else "image_token_id"
    config = config(
        text_config=text, vision_config=vision, downsample_factor=factor, **{name: token}, **rest,
    )
    side = vision["image_size"]
    pixels = dict(size=dict(height=side, width=side), **UNIT)
    return config, pixels | processor


def pali_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of PaliGemma's images and beginnings."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    whole.add_special_tokens(dict(additional_special_tokens=["<image>", "<bos>"]))
    whole.add_tokens(["\n"])
    return whole


def paligemma(vision, text, processor):
    tower = dict(model_type="siglip_vision_model", vision_use_head=False)
    vision, text = clip(**tower | vision), text_config(**text)
    config = PaliGemmaConfig(
        text_config=text, vision_config=vision, projection_dim=text["hidden_size"],
        image_token_index=pali_tokenizer().convert_tokens_to_ids("<image>"),
    )
    side = vision["image_size"]
    pixels = dict(
        image_processor_type="SiglipImageProcessor", size=dict(height=side, width=side),
        image_seq_length=(side // vision["patch_size"]) ** 2, resample=3, **UNIT,
    )
    return config, pixels | processor


LFM2_TAGS = ["<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<image>"]
LFM2_TAGS += [f"<|img_row_{1 + at // 6}_col_{1 + at % 6}|>" for at in range(36)]


def lfm2_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of LFM2-VL's images."""
    trained = train_tokenizer(FIRST_TAG)
    whole = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    whole.add_special_tokens(dict(additional_special_tokens=LFM2_TAGS))
    return whole


def lfm2_vl(vision, text, processor, **rest):
    tower = dict(
        model_type="siglip2_vision_model", hidden_size=24, intermediate_size=36,
        num_hidden_layers=2, num_attention_heads=2, patch_size=8, num_patches=9,
        vision_use_head=False,
    )
    config = Lfm2VlConfig(
        text_config=text_config("lfm2", norm_eps=1e-5, block_auto_adjust_ff_dim=False) | text,
        vision_config=tower | vision,
        image_token_id=lfm2_tokenizer().convert_tokens_to_ids("<image>"), **rest,
    )
    pixels = dict(
        image_processor_type="Lfm2VlImageProcessor", encoder_patch_size=8, tile_size=32,
        min_image_tokens=4, max_image_tokens=12, **UNIT,
    )
    return config, pixels | processor


MINICPM_TAGS = dict(
    image_token="<|image_pad|>", video_token="<|video_pad|>", image_start_token="<image>",
    image_end_token="</image>", slice_start_token="<slice>", slice_end_token="</slice>",
    image_id_start_token="<image_id>", image_id_end_token="</image_id>",
)


def minicpm_tokenizer():
    """Returns a tokenizer of the corpus with the tokens of MiniCPM-V's images."""
    trained = train_tokenizer(FIRST_TAG)
    return PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained),
        extra_special_tokens=MINICPM_TAGS,
    )


def minicpmv(vision, text, processor, **rest):
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        image_size=28, patch_size=4,
    )
    words = minicpm_tokenizer()
    token = lambda name: words.convert_tokens_to_ids(MINICPM_TAGS[name])
    config = MiniCPMV4_6Config(
        text_config=text_config("qwen3_5_text", **QWEN3_5 | text), vision_config=tower | vision,
        image_token_id=token("image_token"), video_token_id=token("video_token"), **rest,
    )
    pixels = dict(
        image_processor_type="MiniCPMV4_6ImageProcessor", patch_size=4, scale_resolution=64,
        max_slice_nums=1, **UNIT,
    )
    return config, pixels | processor


# A text model of Qwen3.5.
QWEN3_5 = dict(
    head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
    linear_value_head_dim=12, partial_rotary_factor=0.25,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    rope_parameters=dict(
        rope_type="default", rope_theta=10_000.0, mrope_section=[2, 1, 1], mrope_interleaved=True,
        partial_rotary_factor=0.25,
    ),
)
QWEN4_EXP = dict(
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, hc_count=2, hc_lowrank=6,
    shared_expert_intermediate_size=16, ple_layer_ids=[3], ple_embed_dim=12, heads_per_ngram=3,
    ngram_vocab_size_base=70, split_ngram_parts=2, indexer_n_heads=1, indexer_kv_heads=1,
    indexer_head_dim=16, indexer_budget=512, indexer_compress_ratio=4,
)
GLMS = ("glm4v", "glm4v_moe", "glm_ocr")
COHERES = ("aya_vision", "cohere2_vision")


def got_ocr2(vision, text, **rest):
    """Returns a model of GOT-OCR 2, whose images have the size of its tower."""
    tower = dict(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=2, mlp_dim=40, output_channels=8,
        image_size=80, patch_size=16, global_attn_indexes=[1],
    ) | vision
    config = GotOcr2Config(
        text_config=text, vision_config=tower, image_token_index=IMAGE_TOKEN, **rest,
    )
    side = dict.fromkeys(("height", "width"), tower["image_size"])
    return config, dict(image_processor_type="GotOcr2ImageProcessor", size=side, **CLIP)


# The token of an embedding, and the marks around them.
OVIS_TAGS = ["<IMG_ATOM>"] + [f"<IMG_{mark}>" for mark in ("START", "GRID", "COL", "ROW", "END")]


def ovis_tokenizer():
    words = tokenizer()
    words.add_special_tokens(dict(additional_special_tokens=TAGS + OVIS_TAGS))
    return words


def ovis2(vision, text, processor, **rest):
    """Returns a model of Ovis 2, whose tiles have the size of its tower."""
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=42, patch_size=7, vocab_size=37, hidden_stride=2,
    ) | vision
    atom, *marks = ovis_tokenizer().convert_tokens_to_ids(OVIS_TAGS)
    config = Ovis2Config(
        text_config=text, vision_config=tower, image_token_id=atom,
        visual_indicator_token_ids=marks, vocab_size=512, hidden_size=32, **rest,
    )
    side = dict.fromkeys(("height", "width"), tower["image_size"])
    return config, dict(image_processor_type="Ovis2ImageProcessor", size=side, **CLIP) | processor


def blip2(vision, qformer, text, queries):
    """Returns a model of BLIP-2, whose images have the size of its tower."""
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2,
        image_size=42, patch_size=7,
    ) | vision
    former = dict(
        hidden_size=20, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2,
        vocab_size=8,
    ) | qformer
    decoder = dict(
        model_type="opt", vocab_size=512, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=512, word_embed_proj_dim=32,
        bos_token_id=2, eos_token_id=2, pad_token_id=1, init_std=0.2,
    ) | text
    config = Blip2Config(
        vision_config=tower, qformer_config=former, text_config=decoder,
        num_query_tokens=queries, image_token_index=IMAGE_TOKEN,
    )
    side = dict.fromkeys(("height", "width"), tower["image_size"])
    return config, dict(image_processor_type="BlipImageProcessor", size=side, **CLIP)


def models():
    """Returns the models: functions to a config and the fields of its image processor."""
    return {
        "llava": lambda: llava(clip(), clip_processor()),
        # Two feature layers, the class token kept, an old form of sizes, and padding to a square.
        "llava-full": lambda: llava(
            clip(hidden_act="gelu", num_attention_heads=3),
            clip_processor(
                image_processor_type="LlavaImageProcessor", do_pad=True, size=42, crop_size=42,
                resample=2,
            ),
            "qwen2", vision_feature_layer=[-2, 1], vision_feature_select_strategy="full",
            projector_hidden_act="relu", multimodal_projector_bias=False,
        ),
        "llava-siglip": lambda: llava(
            siglip(),
            dict(
                image_processor_type="SiglipImageProcessor", size=dict(height=42, width=42),
                resample=2, **UNIT,
            ),
            vision_feature_layer=-1, vision_feature_select_strategy="full",
        ),
        # Without its first patch, as the towers with a class token.
        "llava-siglip-rest": lambda: llava(
            siglip(),
            dict(
                image_processor_type="SiglipImageProcessor", size=dict(height=42, width=42),
                resample=2, **UNIT,
            ),
            vision_feature_layer=[1, -1], vision_feature_select_strategy="default",
        ),
        "llava-qwen3": lambda: llava(
            clip(), clip_processor(), text_config("qwen3", head_dim=16), tie_word_embeddings=True,
        ),
        "qwen2_vl": lambda: qwen(
            Qwen2VLConfig, "qwen2_vl_text",
            dict(depth=2, embed_dim=24, num_heads=2, mlp_ratio=2, hidden_size=32, patch_size=14),
            dict(patch_size=14, min_pixels=784, max_pixels=28 * 28 * 12, **CLIP),
            **axes([1, 1, 2]),
        ),
        "qwen2_5_vl": lambda: qwen(
            Qwen2_5_VLConfig, "qwen2_5_vl_text",
            VISUAL | dict(window_size=56, fullatt_block_indexes=[1], patch_size=14),
            dict(patch_size=14, min_pixels=784, max_pixels=28 * 28 * 30, **CLIP), tied=True,
            **axes([2, 1, 1]),
        ),
        "qwen2_5_vl-wide": lambda: qwen(
            Qwen2_5_VLConfig, "qwen2_5_vl_text",
            VISUAL | dict(
                window_size=24, fullatt_block_indexes=[0, 2], patch_size=4, num_heads=3,
                temporal_patch_size=1, spatial_merge_size=3, hidden_act="gelu",
            ),
            dict(
                patch_size=4, merge_size=3, temporal_patch_size=1,
                size=dict(shortest_edge=144, longest_edge=144 * 40), **CLIP,
            ),
            **axes([1, 2, 1]),
        ),
        "qwen3_vl": lambda: qwen(
            Qwen3VLConfig, "qwen3_vl_text",
            VISUAL | dict(
                patch_size=16, num_position_embeddings=25, deepstack_visual_indexes=[0, 2],
            ),
            dict(patch_size=16, size=dict(shortest_edge=1024, longest_edge=1024 * 12), **UNIT),
            head_dim=12, **axes([2, 2, 2], mrope_interleaved=True),
        ),
        "qwen3_vl-one": lambda: qwen(
            Qwen3VLConfig, "qwen3_vl_text",
            VISUAL | dict(patch_size=8, num_position_embeddings=16, deepstack_visual_indexes=[1]),
            dict(patch_size=8, size=dict(shortest_edge=256, longest_edge=256 * 40), **UNIT),
            tied=True, head_dim=8, **axes([2, 1, 1], mrope_interleaved=True),
        ),
        "qwen3_5": lambda: qwen(
            Qwen3_5Config, "qwen3_5_text",
            VISUAL | dict(patch_size=8, num_position_embeddings=36),
            dict(patch_size=8, size=dict(shortest_edge=256, longest_edge=256 * 30), **UNIT),
            **QWEN3_5,
        ),
        "qwen4_exp": lambda: qwen(
            Qwen4ExpConfig, "qwen4_exp_text",
            VISUAL | dict(patch_size=8, num_position_embeddings=36),
            dict(patch_size=8, size=dict(shortest_edge=256, longest_edge=256 * 30), **UNIT),
            **QWEN3_5 | QWEN4_EXP,
        ),
        # Heads of the tower that share keys and values.
        "exaone4_5": lambda: qwen(
            Exaone4_5_Config, "exaone4",
            VISUAL | dict(
                window_size=28, fullatt_block_indexes=[1], patch_size=7, num_heads=4,
                hidden_size=32, num_key_value_heads=2,
            ),
            dict(patch_size=7, min_pixels=784, max_pixels=14 * 14 * 30, **CLIP),
            num_hidden_layers=4, sliding_window=16, sliding_window_pattern=4,
            layer_types=["sliding_attention"] * 3 + ["full_attention"],
        ),
        # All heads share one, layers have no windows, and the output layer is the embedding.
        "exaone4_5-one": lambda: qwen(
            Exaone4_5_Config, "exaone4",
            VISUAL | dict(
                window_size=32, fullatt_block_indexes=[0], patch_size=8, num_heads=2,
                num_key_value_heads=1,
            ),
            dict(patch_size=8, min_pixels=1024, max_pixels=16 * 16 * 30, **UNIT),
            tied=True, num_hidden_layers=2, intermediate_size=40, sliding_window=None,
            sliding_window_pattern=None,
            layer_types=["full_attention"] * 2,
        ),
        "pixtral": lambda: llava(
            pixtral_tower(), pixtral_processor(64, 8), "mistral", IMAGE_TOKEN,
            vision_feature_layer=-1, vision_feature_select_strategy="full",
        ),
        "mistral3": lambda: mistral3(
            pixtral_tower(hidden_act="silu", num_attention_heads=3, hidden_size=36),
            pixtral_processor(80, 16), text_config("mistral"),
        ),
        "mistral3-bias": lambda: mistral3(
            pixtral_tower(patch_size=4), pixtral_processor(60, 12),
            text_config("ministral3", head_dim=8), spatial_merge_size=3, vision_feature_layer=1,
            multimodal_projector_bias=True, projector_hidden_act="relu",
        ),
        "llava_next": lambda: llava_next(
            clip(), [[42, 84], [84, 42], [84, 84], [126, 42], [42, 126]], size=dict(shortest_edge=42),
        ),
        "llava_next-wide": lambda: llava_next(
            clip(patch_size=21, num_attention_heads=3), [[42, 168], [126, 84]], "mistral",
            vision_feature_layer=[-2, -1], size=dict(height=42, width=42),
        ),
        "granite_vision": lambda: granite_vision(
            text_config("granite", embedding_multiplier=3.0, attention_multiplier=0.2,
                        residual_multiplier=0.7),
            vision_feature_layer=[-3, -1], tie_word_embeddings=True,
        ),
        "granite_vision-one": lambda: granite_vision(
            text_config("qwen3", head_dim=8), vision_feature_layer=-2, tie_word_embeddings=False,
        ),
        "llava_next_video": lambda: llava_next_video(
            clip(image_size=28, patch_size=7), [[28, 56], [56, 28], [56, 56], [84, 28]],
        ),
        # Six patches a side, and another family of texts.
        "llava_next_video-wide": lambda: llava_next_video(
            clip(image_size=36, patch_size=6), [[36, 72], [72, 36], [72, 72]], text="mistral",
        ),
        # Images of more than two tiles have their features resized.
        "llava_onevision": lambda: llava_onevision(
            28, [(1, 2), (2, 1), (2, 2), (3, 1), (1, 6), (3, 3)], text_config("qwen2"),
            vision_aspect_ratio="anyres_max_2", tie_word_embeddings=False,
        ),
        # An odd number of patches, which frames halve.
        "llava_onevision-odd": lambda: llava_onevision(
            35, [(1, 2), (2, 2), (1, 3)], text_config("qwen3", head_dim=8, num_hidden_layers=2),
            vision_feature_layer=[-2, -1], tie_word_embeddings=True,
        ),
        "idefics3": lambda: idefics3(Idefics3Config, 32, 96, {}, 2),
        "smolvlm": lambda: idefics3(
            SmolVLMConfig, 48, 130, dict(num_attention_heads=3, hidden_act="gelu"), 3,
            image_processor_type="SmolVLMImageProcessor",
        ),
        "smolvlm-one": lambda: idefics3(
            SmolVLMConfig, 24, 50, dict(layer_norm_eps=1e-3), 1, resample=3,
        ),
        "idefics3-whole": lambda: idefics3(
            Idefics3Config, 64, 100, {}, 4, do_image_splitting=False,
        ),
        "gemma3": lambda: gemma3(
            dict(image_size=42, patch_size=7), dict(
                head_dim=8, sliding_window=16, query_pre_attn_scalar=24,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            ), 9, do_pan_and_scan=None,
        ),
        # Images are longer than the window.
        "gemma3-wide": lambda: gemma3(
            dict(image_size=40, patch_size=5, num_attention_heads=3, layer_norm_eps=1e-3,
                 hidden_act="gelu"),
            dict(
                head_dim=12, sliding_window=7, attention_bias=True, num_key_value_heads=1,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            ), 16, resample=3,
        ),
        "glm4v": lambda: glm(
            Glm4vConfig,
            text_config("glm4v_text", num_attention_heads=2, num_key_value_heads=1, **axes(
                [2, 1, 1], partial_rotary_factor=0.5,
            )),
            {}, dict(size=dict(shortest_edge=1024, longest_edge=16 * 16 * 2 * 12)),
        ),
        # Videos of GLM-4.6V's class, whose patches span two frames as in the published folders.
        "glm4v-pairs": lambda: glm(
            Glm4vConfig,
            text_config("glm4v_text", num_attention_heads=4, num_key_value_heads=2, **axes(
                [1, 2, 1], partial_rotary_factor=1.0,
            )),
            dict(patch_size=6, image_size=30, num_heads=3, attention_bias=True),
            dict(patch_size=6, size=dict(shortest_edge=576, longest_edge=12 * 12 * 2 * 16)),
        ),
        # Squares of nine patches of one frame, and experts.
        "glm4v_moe": lambda: glm(
            Glm4vMoeConfig,
            text_config(
                "glm4v_moe_text", head_dim=8, num_hidden_layers=2, first_k_dense_replace=1,
                n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
                moe_intermediate_size=16, attention_bias=True, **axes(
                    [1, 1, 2], partial_rotary_factor=1.0,
                ),
            ),
            dict(
                patch_size=4, spatial_merge_size=3, temporal_patch_size=1, num_heads=3,
                attention_bias=True, hidden_act="gelu", image_size=21, rms_norm_eps=1e-3,
                rope_parameters=dict(rope_type="axial", rope_theta=500.0),
            ),
            dict(
                patch_size=4, merge_size=3, temporal_patch_size=1,
                size=dict(shortest_edge=144, longest_edge=144 * 40),
            ),
        ),
        # The published form: patches of two frames, and heads that are wider than the model.
        "glm_ocr": lambda: glm(
            GlmOcrConfig,
            text_config("glm_ocr_text", head_dim=16, **axes([3, 3, 2], partial_rotary_factor=1.0)),
            dict(in_channels=3),
            dict(size=dict(shortest_edge=1024, longest_edge=16 * 16 * 2 * 12)),
        ),
        # Without biases, with the embedding as the output layer.
        "glm_ocr-tied": lambda: glm(
            GlmOcrConfig,
            text_config("glm_ocr_text", num_key_value_heads=4, num_hidden_layers=2, **axes(
                [1, 1, 0], partial_rotary_factor=0.5,
            )),
            dict(
                patch_size=4, spatial_merge_size=3, temporal_patch_size=1, num_heads=3,
                attention_bias=False, hidden_act="gelu", rms_norm_eps=1e-3,
                rope_parameters=dict(rope_type="axial", rope_theta=500.0),
            ),
            dict(
                patch_size=4, merge_size=3, temporal_patch_size=1,
                size=dict(shortest_edge=144, longest_edge=144 * 40),
            ),
            tie_word_embeddings=True,
        ),
        "lighton_ocr": lambda: lighton_ocr(
            dict(hidden_act="silu"), 80, 16, dict(head_dim=16), tie_word_embeddings=True,
        ),
        # Patches beside whole squares, which have no embedding.
        "lighton_ocr-rest": lambda: lighton_ocr(
            dict(patch_size=4, num_attention_heads=3, hidden_size=36, rope_parameters=dict(
                rope_type="default", rope_theta=500.0,
            )),
            70, 4, dict(head_dim=8, attention_bias=True, num_hidden_layers=2),
            spatial_merge_size=3, tie_word_embeddings=False,
        ),
        "lighton_ocr-mistral3": lambda: lighton_ocr(
            {}, 80, 16, dict(head_dim=8), tie_word_embeddings=True,
        ),
        "lighton_ocr-mistral3-untied": lambda: lighton_ocr(
            dict(hidden_act="silu", patch_size=4), 60, 12, dict(head_dim=8, num_hidden_layers=2),
            spatial_merge_size=3, tie_word_embeddings=False,
        ),
        "paddleocr_vl": lambda: paddleocr_vl(
            {}, axes([2, 1, 1]) | dict(tie_word_embeddings=False), {}, tie_word_embeddings=False,
        ),
        # Squares of nine patches, biases, and the embedding as the output layer.
        "paddleocr_vl-bias": lambda: paddleocr_vl(
            dict(
                patch_size=4, image_size=28, spatial_merge_size=3, num_attention_heads=3,
                hidden_act="gelu", layer_norm_eps=1e-3,
                rope_parameters=dict(rope_type="axial", rope_theta=500.0),
            ),
            dict(
                use_bias=True, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
                num_hidden_layers=2,
            ) | axes([1, 2, 3], rope_theta=500.0),
            dict(
                patch_size=4, merge_size=3, size=dict(shortest_edge=144, longest_edge=144 * 30),
                resample=2, **CLIP,
            ),
            tie_word_embeddings=True,
        ),
        "aya_vision": lambda: cohere_vision(
            AyaVisionConfig, dict(patch_size=7), cohere_text(num_hidden_layers=4), 2,
            dict(image_processor_type="GotOcr2ImageProcessor", max_patches=6),
            alignment_intermediate_size=40, tie_word_embeddings=True,
        ),
        "aya_vision-one": lambda: cohere_vision(
            AyaVisionConfig, dict(image_size=24, patch_size=8, num_attention_heads=3),
            cohere_text(num_hidden_layers=2, attention_bias=True), 3,
            dict(image_processor_type="GotOcr2ImageProcessor", min_patches=2, max_patches=4),
            vision_feature_layer=-2, adapter_layer_norm_eps=1e-3, tie_word_embeddings=False,
        ),
        "cohere2_vision": lambda: cohere_vision(
            Cohere2VisionConfig, dict(patch_size=7), cohere_text(num_hidden_layers=4), 2,
            dict(image_processor_type="Cohere2VisionImageProcessor", max_patches=6, patch_size=3),
            alignment_intermediate_size=48, tie_word_embeddings=True,
        ),
        "cohere2_vision-one": lambda: cohere_vision(
            Cohere2VisionConfig,
            dict(image_size=32, patch_size=8, hidden_act="gelu", layer_norm_eps=1e-3),
            cohere_text(num_hidden_layers=2), 4,
            dict(
                image_processor_type="Cohere2VisionImageProcessor", crop_to_patches=False,
                patch_size=1, resample=2,
            ),
            alignment_intermediate_size=20, tie_word_embeddings=False,
        ),
        "paligemma": lambda: paligemma(
            dict(patch_size=14), dict(model_type="gemma", head_dim=8), {},
        ),
        # Layers with a window, and caps of scores and logits.
        "paligemma-two": lambda: paligemma(
            dict(
                image_size=40, patch_size=10, num_attention_heads=3, hidden_act="gelu",
                layer_norm_eps=1e-3,
            ),
            dict(
                model_type="gemma2", head_dim=12, num_key_value_heads=1, query_pre_attn_scalar=24,
                sliding_window=128, num_hidden_layers=2,
            ),
            dict(resample=2),
        ),
        "lfm2_vl": lambda: lfm2_vl(
            {}, dict(num_hidden_layers=4, layer_types=["conv", "full_attention"] * 2),
            dict(max_pixels_tolerance=4.0), projector_hidden_size=28, tie_word_embeddings=True,
        ),
        # Squares of nine patches, positions that shrink, and no thumbnail.
        "lfm2_vl-wide": lambda: lfm2_vl(
            dict(
                num_patches=64, patch_size=4, hidden_act="gelu", num_attention_heads=3,
                layer_norm_eps=1e-3,
            ),
            dict(
                num_hidden_layers=3, layer_types=["conv", "conv", "full_attention"],
                num_key_value_heads=1, conv_bias=True, conv_L_cache=4,
            ),
            dict(
                encoder_patch_size=4, downsample_factor=3, tile_size=24, min_image_tokens=2,
                max_image_tokens=20, use_thumbnail=False, do_image_splitting=False, resample=3,
            ),
            downsample_factor=3, projector_use_layernorm=False, projector_bias=False,
            projector_hidden_act="relu", projector_hidden_size=20, tie_word_embeddings=False,
        ),
        "minicpmv4_6": lambda: minicpmv({}, {}, {}, insert_layer_id=1, tie_word_embeddings=True),
        # The windows merge before the last layer. Positions of a larger grid than images.
        "minicpmv4_6-wide": lambda: minicpmv(
            dict(
                num_hidden_layers=2, num_attention_heads=3, image_size=66, patch_size=3,
                layer_norm_eps=1e-3, hidden_act="gelu",
            ),
            dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"]),
            dict(patch_size=3, scale_resolution=36, resample=2), insert_layer_id=0,
        ),
        "llama4": lambda: llama4({}, {}),
        "llama4-wide": lambda: llama4(
            dict(
                image_size=24, patch_size=4, pixel_shuffle_ratio=1 / 3, num_attention_heads=3,
                intermediate_size=24 * 9, rope_parameters=dict(rope_type="default", rope_theta=100.0),
            ),
            dict(max_patches=9, resize_to_max_canvas=True, resample=3),
            num_hidden_layers=2, interleave_moe_layer_step=2, use_qk_norm=False,
        ),
        "blip2": lambda: blip2({}, {}, {}, 5),
        # All layers of the queries see the image.
        "blip2-wide": lambda: blip2(
            dict(
                image_size=32, patch_size=8, qkv_bias=False, num_attention_heads=3,
                hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-4,
            ),
            dict(
                cross_attention_frequency=1, num_hidden_layers=2, hidden_act="relu",
                layer_norm_eps=1e-3, hidden_size=24, num_attention_heads=3,
            ),
            dict(num_hidden_layers=3, tie_word_embeddings=False), 7,
        ),
        "ovis2": lambda: ovis2(
            {}, text_config("qwen2"), dict(crop_to_patches=True, max_patches=4),
            tie_word_embeddings=False,
        ),
        # Squares of nine patches, and tiles in the nearest ratio.
        "ovis2-odd": lambda: ovis2(
            dict(
                image_size=36, patch_size=4, hidden_stride=3, qkv_bias=True, mlp_bias=True,
                num_attention_heads=3, hidden_act="gelu", rms_norm_eps=1e-3,
                num_visual_indicator_tokens=5, vocab_size=45,
            ),
            text_config("qwen2", num_hidden_layers=2, tie_word_embeddings=True),
            dict(crop_to_patches=True, min_patches=2, max_patches=3, use_covering_area_grid=False),
        ),
        # Windows are wider than images, and then within them.
        "got_ocr2": lambda: got_ocr2({}, text_config("qwen2", tie_word_embeddings=True)),
        "got_ocr2-windows": lambda: got_ocr2(
            dict(
                image_size=48, patch_size=8, window_size=4, global_attn_indexes=[0, 3],
                num_hidden_layers=4, num_attention_heads=3, qkv_bias=False, output_channels=12,
                layer_norm_eps=1e-4, hidden_act="gelu_pytorch_tanh",
            ),
            text_config("qwen2", num_hidden_layers=2), tie_word_embeddings=False,
        ),
        "internvl": lambda: internvl(text_config("qwen2"), dict(attention_bias=True), 0.5),
        "internvl-norms": lambda: internvl(
            text_config("qwen3", head_dim=8),
            dict(use_qk_norm=True, norm_type="rms_norm", use_mean_pooling=False), 0.25,
            min_patches=2, max_patches=4,
        ),
        "interns1": lambda: internvl(
            text_config("qwen3", head_dim=8, num_hidden_layers=2),
            dict(use_qk_norm=True, norm_type="rms_norm", attention_bias=True), 0.5, max_patches=4,
        ),
        "interns1-experts": lambda: internvl(
            text_config(
                "qwen3_moe", head_dim=8, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=24, norm_topk_prob=True, num_hidden_layers=2,
            ),
            {}, 0.5, max_patches=3,
        ),
        "internvl-experts": lambda: internvl(
            text_config(
                "qwen3_moe", head_dim=8, num_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=24, norm_topk_prob=True,
            ),
            {}, 0.5,
        ),
        "internvl-sinks": lambda: internvl(
            text_config(
                "gpt_oss", head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                sliding_window=16, rope_parameters=dict(rope_type="default", rope_theta=10_000.0),
            ),
            {}, 0.5,
        ),
    }


def randomize(model, seed):
    """Sets random weights. Norms and biases do not stay at one and zero, so they have an effect."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(0.0, 0.2, generator=generator)
        elif "norm" in name or "ln_" in name or "lambda" in name:
            parameter.data.uniform_(0.5, 1.5, generator=generator)
        else:
            parameter.data.normal_(0.0, 0.2, generator=generator)


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.flatten().tolist()]


def pixels_of(model, processor, image):
    """Returns the bytes of an image before they are rescaled, [count, height, width, 3]."""
    rescale, normalize = processor.do_rescale, processor.do_normalize
    processor.do_rescale = processor.do_normalize = False
    raw = inputs_of(model, processor, [image])
    processor.do_rescale, processor.do_normalize = rescale, normalize
    values = raw["pixel_values"].to(torch.uint8)
    if "spatial_shapes" in raw:
        assert len(values) == 1
        return from_spatial(values[0], raw["spatial_shapes"][0])
    if "target_sizes" in raw:
        return from_packed(values, raw["target_sizes"])[0]
    if "image_grid_thw" not in raw:
        return values.reshape(-1, *values.shape[-3:]).permute(0, 2, 3, 1)
    (_, rows, columns), merge = raw["image_grid_thw"][0].tolist(), processor.merge_size
    side, frames = processor.patch_size, processor.temporal_patch_size
    if model.config.model_type == "paddleocr_vl":
        patches = values.reshape(rows, columns, 3, side, side).permute(0, 3, 1, 4, 2)
        return patches.reshape(1, rows * side, columns * side, 3).contiguous()
    patches = values.reshape(
        rows // merge, columns // merge, merge, merge, 3, frames, side, side
    )[:, :, :, :, :, 0]
    patches = patches.permute(0, 2, 5, 1, 3, 6, 4)
    return patches.reshape(1, rows * side, columns * side, 3)


def from_packed(values, sizes):
    """Returns the pixels of MiniCPM-V's images, each [1, height, width, 3]."""
    (_, channels, side, _), first, images = values.shape, 0, []
    for rows, columns in sizes.tolist():
        own = values[0, :, :, first : first + rows * columns * side]
        own = own.reshape(channels, side, rows, columns, side).permute(2, 1, 3, 4, 0)
        images.append(own.reshape(1, rows * side, columns * side, 3).contiguous())
        first += rows * columns * side
    return images


def from_spatial(patches, shape):
    """Returns the pixels of SigLIP 2's patches, [1, height, width, 3]."""
    rows, columns = shape.tolist()
    side = int((patches.shape[-1] // 3) ** 0.5)
    patches = patches[: rows * columns].reshape(rows, columns, side, side, 3)
    patches = patches.permute(0, 2, 1, 3, 4)
    return patches.reshape(1, rows * side, columns * side, 3).contiguous()


def whole_processor(model, processor):
    """Returns the processor of a class whose images have other tokens than placeholders."""
    kind, config = model.config.model_type, model.config
    if kind == "gemma3":
        return Gemma3Processor(
            processor, gemma_tokenizer(), image_seq_length=config.mm_tokens_per_image,
        )
    if kind == "llama4":
        tower = config.vision_config
        return Llama4Processor(
            processor, llama4_tokenizer(), tower.patch_size, tower.pixel_shuffle_ratio,
            chat_template="none",
        )
    if kind == "aya_vision":
        tower = config.vision_config
        return AyaVisionProcessor(
            processor, cohere_tokenizer(), tower.patch_size, tower.image_size,
            downsample_factor=config.downsample_factor, chat_template="none",
        )
    if kind == "lfm2_vl":
        return Lfm2VlProcessor(processor, lfm2_tokenizer(), chat_template="none")
    if kind == "cohere2_vision":
        return Cohere2VisionProcessor(processor, cohere_tokenizer(), chat_template="none")
    if kind == "minicpmv4_6":
        return MiniCPMV4_6Processor(
            processor, MiniCPMV4_6VideoProcessor(), minicpm_tokenizer(), chat_template="none",
        )
    if kind == "ovis2":
        tower = config.vision_config
        side = -(-(tower.image_size // tower.patch_size) // tower.hidden_stride)
        return Ovis2Processor(processor, ovis_tokenizer(), image_seq_length=side**2)
    words = tokenizer()
    if kind == "lighton_ocr":
        words.image_token, words.image_token_id = "<image>", IMAGE_TOKEN
        for name, tag in (("image_break_token", "[IMG_BREAK]"), ("image_end_token", "[IMG_END]")):
            setattr(words, name, tag)
            setattr(words, name + "_id", words.convert_tokens_to_ids(tag))
        return LightOnOcrProcessor(
            processor, words, config.vision_config.patch_size, config.spatial_merge_size,
            chat_template="none",
        )
    if kind == "llava_next_video":
        return LlavaNextVideoProcessor(
            LlavaNextVideoVideoProcessor(), processor, words, "none",
            patch_size=config.vision_config.patch_size, num_additional_image_tokens=1,
            vision_feature_select_strategy=config.vision_feature_select_strategy,
        )
    if kind == "llava_onevision":
        tower = config.vision_config
        return LlavaOnevisionProcessor(
            processor, words, LlavaOnevisionVideoProcessor(),
            (tower.image_size // tower.patch_size) ** 2, "full",
            vision_aspect_ratio=config.vision_aspect_ratio, chat_template="none",
        )
    if kind == "mistral3" or config.vision_config.model_type == "pixtral":
        merge = getattr(config, "spatial_merge_size", 1)
        return PixtralProcessor(
            processor, words, config.vision_config.patch_size, merge, image_token="<image>",
        )
    if kind in ("idefics3", "smolvlm"):
        tower = config.vision_config
        count = (tower.image_size // tower.patch_size // config.scale_factor) ** 2
        return Idefics3Processor(processor, words, count)
    if kind == "internvl":
        tower = config.vision_config
        side = tower.image_size[0] // tower.patch_size[0] * config.downsample_ratio
        return InternVLProcessor(processor, words, InternVLVideoProcessor(), int(side) ** 2)
    return None


def tokens_of(whole, image, count, image_token):
    """Returns the tokens of an image in a prompt."""
    if whole is None:
        return [image_token] * count
    kwargs = whole.images_kwargs if hasattr(whole, "images_kwargs") else {}
    kwargs = {name: value for name, value in kwargs.items() if name != "return_tensors"}
    if isinstance(whole, PixtralProcessor):
        kwargs["patch_size"] = whole.patch_size * whole.spatial_merge_size
    inputs = whole.image_processor([image], return_tensors="pt", **kwargs)
    marks = dict(use_image_special_tokens=True) if isinstance(whole, Lfm2VlProcessor) else {}
    marks |= dict(image_token_divisor=16) if isinstance(whole, MiniCPMV4_6Processor) else {}
    text = whole.replace_image_token(inputs, 0, **marks)
    return whole.tokenizer(text, add_special_tokens=False)["input_ids"]


def features_of(model, inputs):
    """Returns the embeddings of one image, and the states for single layers."""
    output = model.get_image_features(**inputs, return_dict=True)
    if model.config.model_type == "llama4":
        states = output.last_hidden_state
        return model.multi_modal_projector(states.flatten(0, -2)), []
    whole = lambda parts: parts if torch.is_tensor(parts) else torch.cat(list(parts), dim=0)
    deep = getattr(output, "deepstack_features", None) or []
    embeddings = whole(output.pooler_output)
    return embeddings.flatten(0, -2), [whole(states) for states in deep]


def with_marks_of_ovis(model, inputs, embeddings, tokens):
    """Returns the embeddings of an image's tokens, those of its marks among them."""
    output = model.get_image_features(**inputs, return_dict=True)
    marks = dict(zip(model.config.visual_indicator_token_ids, output.visual_indicator_features))
    rows = iter(embeddings)
    return torch.stack([marks[it] if it in marks else next(rows) for it in tokens])


def grid_of(model, inputs):
    if "image_grid_thw" not in inputs:
        return None
    frames, rows, columns = inputs["image_grid_thw"][0].tolist()
    merge = model.config.vision_config.spatial_merge_size
    return [frames, rows // merge, columns // merge]


def inputs_of(model, processor, images):
    """Returns the model's inputs of images, without those that it does not take."""
    kwargs = {}
    if model.config.model_type in ("internvl", "aya_vision"):
        kwargs = dict(crop_to_patches=True)
    is_lighton = model.config.model_type == "lighton_ocr"
    if model.config.vision_config.model_type == "pixtral" and not is_lighton:
        merge = getattr(model.config, "spatial_merge_size", 1)
        kwargs = dict(patch_size=model.config.vision_config.patch_size * merge)
    inputs = dict(processor(images, return_tensors="pt", **kwargs))
    if model.config.model_type == "llama4":
        inputs["pixel_values"] = inputs["pixel_values"].float()
    return {name: it for name, it in inputs.items() if name not in UNREAD}


# The outputs of processors that models do not take.
UNREAD = (
    "batch_num_images", "grids", "num_patches_per_image", "num_patches", "num_crops", "rows", "cols",
    "aspect_ratios",
)


def tiles_of(model, processor, size):
    """Returns the shape that tells the encoder of LLaVA-NeXT the tiles of an image."""
    if model.config.model_type == "ovis2":
        grid = processor([Image.fromarray(draw(*size))], return_tensors="pt")["grids"][0].tolist()
        return [*grid, 0] if grid != [1, 1] else None
    if model.config.model_type not in ("llava_next", "llava_next_video", "llava_onevision"):
        return None
    side = model.config.vision_config.image_size
    best = select_best_resolution(size, processor.image_grid_pinpoints)
    return [best[0] // side, best[1] // side, *size, 0]


def image_record(model, processor, size):
    image = Image.fromarray(draw(*size))
    pixels = pixels_of(model, processor, image)
    inputs = inputs_of(model, processor, [image])
    whole = whole_processor(model, processor)
    embeddings, by_layer = features_of(model, inputs)
    tokens = tokens_of(whole, image, len(embeddings), model.config.image_token_id)
    if model.config.model_type == "ovis2":
        embeddings = with_marks_of_ovis(model, inputs, embeddings, tokens)
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), grid=grid_of(model, inputs),
        tiles=tiles_of(model, processor, size),
        num_embeds=len(embeddings), embeddings=rounded(embeddings),
        by_layer=[rounded(states) for states in by_layer], tokens=tokens,
    )


def logits_of(model, ids, inputs):
    """Returns the logits of a prompt. HF `Llama4ForConditionalGeneration` fails at the last line of
    its `forward` where its text model is one of experts, so its steps are here."""
    if model.config.model_type != "llama4":
        return model(input_ids=ids, use_cache=False, **inputs).logits[0]
    embeds = model.get_input_embeddings()(ids)
    if "pixel_values" in inputs:
        features, _ = features_of(model, inputs)
        places = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
        embeds = embeds.masked_scatter(places, features)
    return model.language_model(inputs_embeds=embeds, use_cache=False).logits[0]


def greedy_tokens(model, ids, inputs, count=12):
    """Returns the likeliest tokens after a prompt."""
    begin = ids.shape[1]
    for _ in range(count):
        inputs = dict(inputs)
        for name in ("token_type_ids", "mm_token_type_ids"):
            if name in inputs:
                missing = ids.shape[1] - inputs[name].shape[1]
                # The tokens of an answer are no prefix.
                kind = int(model.config.model_type == "paligemma")
                inputs[name] = torch.nn.functional.pad(inputs[name], (0, missing), value=kind)
        row = logits_of(model, ids, inputs)[-1].log_softmax(-1)
        first, second = row.topk(2).values.tolist()
        assert first - second > 1e-3, "two tokens are nearly equal"
        ids = torch.cat([ids, row.argmax()[None, None]], dim=1)
    return ids[0, begin:].tolist()


def placed_token(config):
    """Returns the token of an image before it is expanded."""
    if config.model_type == "llama4":
        return llama4_tokenizer().convert_tokens_to_ids("<|image|>")
    if config.model_type == "ovis2":
        return IMAGE_TOKEN
    if config.model_type == "aya_vision":
        return cohere_tokenizer().convert_tokens_to_ids("<image>")
    return getattr(config, "boi_token_index", config.image_token_id)


def with_marks(tokens, image_token):
    """Returns a prompt of PaliGemma with its beginning behind the last image, and its end."""
    words = pali_tokenizer()
    last = len(tokens) - tokens[::-1].index(image_token)
    begin, end = words.convert_tokens_to_ids(["<bos>", "\n"])
    return tokens[:last] + [begin] + tokens[last:] + [end]


def number_of(config, index):
    """Returns the tokens before an image that tell its number, if there are some."""
    if config.model_type != "minicpmv4_6":
        return []
    start, end = (MINICPM_TAGS[f"image_id_{name}_token"] for name in ("start", "end"))
    return minicpm_tokenizer()(f"{start}{index}{end}", add_special_tokens=False)["input_ids"]


def has_axes(model):
    """Returns whether positions of the text model have three axes."""
    has_index = hasattr(getattr(model, "model", None), "get_rope_index")
    return has_index and model.config.model_type not in ("exaone4_5", "minicpmv4_6")


def blip2_record(model, processor, images, sizes, tokens, placed):
    """Runs a prompt of BLIP-2. Its class takes no prompt without an image, and its text model
    does."""
    embeddings = [torch.zeros(0, model.config.text_config.hidden_size)]
    for index in sizes:
        image = Image.fromarray(draw(*sizes_of(model)[index]))
        embeddings.append(features_of(model, inputs_of(model, processor, [image]))[0])
    begin = model.config.text_config.bos_token_id
    text = [begin] + [token for token in tokens if token != IMAGE_TOKEN]
    tokens = [token for index in sizes for token in images[index]["tokens"]] + text
    answers = placed_prompt(
        model.language_model, torch.tensor([tokens]), IMAGE_TOKEN, torch.cat(embeddings),
    )
    return dict(
        token_ids=tokens, images=list(sizes), positions=None, placed_token_ids=[begin] + placed,
        **answers,
    )


def prompt_record(model, processor, images, sizes):
    """Runs a prompt of text with the images of these indices in it."""
    config, generator = model.config, torch.Generator().manual_seed(len(sizes))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    # The prompt before its images are expanded.
    placed = list(tokens)
    for at, index in enumerate(sizes):
        after = text(4)
        tokens += number_of(config, at) + images[index]["tokens"] + after
        placed += [placed_token(config)] + after
    if config.model_type == "paligemma" and sizes:
        tokens = with_marks(tokens, config.image_token_id)
    if config.model_type == "blip-2":
        # All images come first, also before the token that begins the text.
        return blip2_record(model, processor, images, sizes, tokens, placed)
    ids = torch.tensor([tokens])
    drawn = [Image.fromarray(draw(*sizes_of(model)[index])) for index in sizes]
    inputs = inputs_of(model, processor, drawn) if drawn else {}
    positions = None
    if has_axes(model):
        kinds = (ids == config.image_token_id).int()
        inputs["mm_token_type_ids"] = kinds
        grid = inputs.get("image_grid_thw")
        if grid is not None:
            positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grid)
            positions = positions[:, 0].T.tolist()
        else:
            positions = [[at] * 3 for at in range(len(tokens))]
    greedy = {}
    if config.model_type == "gemma3":
        inputs["token_type_ids"] = (ids == config.image_token_id).int()
    if config.model_type == "paligemma" and sizes:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if config.model_type in GREEDY:
        greedy = dict(placed_token_ids=placed, greedy_token_ids=greedy_tokens(model, ids, inputs))
    logits = logits_of(model, ids, inputs)
    return dict(
        token_ids=tokens, images=list(sizes), positions=positions,
        last_log_probs=rounded(logits[-1].log_softmax(-1)), **greedy,
    )


# The models whose greedy tokens are recorded, which `media_engine.rs` compares.
GREEDY = ("gemma3", "paligemma", "llama4", "lfm2_vl", "lighton_ocr", "paddleocr_vl")
GREEDY += ("llava_next_video", "llava_onevision", "exaone4_5", "minicpmv4_6") + GLMS + COHERES
GREEDY += ("got_ocr2", "ovis2", "blip-2")

# Runs of line feeds, and the texts around an image with crops.
GEMMA_TEXTS = ["\n" * count for count in range(33)] + [
    "Here is the original image ", " and here are some crops to help you see better ", " ",
]
# Texts with images of Gemma, whose line feeds become one token with those beside them.
JOINED = ["{}", "Look:\n{}\nWhat?", "a\n\n{}{}b\n\n", "\n\n\n{} {}\n\n\n\n\n{}\n"]


def joined_record(whole, text):
    """Returns the tokens of a text with images, before and after expansion."""
    drawn = [Image.fromarray(draw(8, 8))] * text.count("{}")
    text = text.replace("{}", whole.boi_token)
    expected = whole(images=drawn, text=text)["input_ids"][0]
    return dict(token_ids=whole.tokenizer(text)["input_ids"], expanded=list(expected))


@torch.no_grad()
def record(folder):
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    images = [image_record(model, processor, size) for size in sizes_of(model)]
    prompts = [prompt_record(model, processor, images, sizes) for sizes in ([], [1], [3, 2], [4, 0, 4])]
    is_gemma = model.config.model_type == "gemma3"
    is_llama4 = model.config.model_type == "llama4"
    is_cohere = model.config.model_type in COHERES
    words = gemma_tokenizer() if is_gemma else llama4_tokenizer() if is_llama4 else tokenizer()
    is_lfm2 = model.config.model_type == "lfm2_vl"
    is_pali = model.config.model_type == "paligemma"
    words = cohere_tokenizer() if is_cohere else lfm2_tokenizer() if is_lfm2 else words
    words = pali_tokenizer() if is_pali else words
    is_minicpm = model.config.model_type == "minicpmv4_6"
    words = minicpm_tokenizer() if is_minicpm else words
    encode = lambda text: words(text, add_special_tokens=False)["input_ids"]
    texts = GEMMA_TEXTS if is_gemma else TAGS + ["\n", "\n\n"]
    texts = texts + ["<video>"] if model.config.model_type == "internvl" else texts
    texts = LLAMA4_TAGS if is_llama4 else COHERE_TAGS + TILES if is_cohere else texts
    texts = [*MINICPM_TAGS.values(), "\n", "0", "1", "2", "3"] if is_minicpm else texts
    texts = LFM2_TAGS if is_lfm2 else ["<bos>", "\n"] if is_pali else texts
    golden = dict(images=images, prompts=prompts, texts={text: encode(text) for text in texts})
    if is_gemma:
        whole = whole_processor(model, processor)
        golden["joined"] = [joined_record(whole, text) for text in JOINED]
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


# The models that crop images, and the settings of a request.
CROP_MODELS = {
    "gemma3": dict(pan_and_scan_min_crop_size=10),
    "gemma3-wide": dict(
        pan_and_scan_min_crop_size=16, pan_and_scan_max_num_crops=3,
        pan_and_scan_min_ratio_to_activate=2.0,
    ),
}


# The models that cut images into tiles which are encoded apart, and the settings of a request.
CUT_MODELS = {
    "lfm2_vl": dict(max_pixels_tolerance=1.0, max_tiles=6),
    "lfm2_vl-wide": dict(do_image_splitting=True, min_tiles=3, max_pixels_tolerance=0.5),
}


@torch.no_grad()
def record_cuts(name, kwargs):
    """Records images in tiles in the form of those with crops."""
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = whole_processor(model, AutoImageProcessor.from_pretrained(folder))
    processor, token, parts, items = whole.image_processor, model.config.image_token_id, [], []
    settings = dict(kwargs, return_row_col_info=True)
    inputs_of_sizes = lambda sizes: processor(
        [Image.fromarray(draw(*size)) for size in sizes], return_tensors="pt", **settings
    )
    names = ("pixel_values", "pixel_attention_mask", "spatial_shapes")
    for size in SIZES:
        processor.do_rescale = processor.do_normalize = False
        raw = inputs_of_sizes([size])
        processor.do_rescale = processor.do_normalize = True
        inputs, first = inputs_of_sizes([size]), len(parts)
        for index, shape in enumerate(raw["spatial_shapes"]):
            pixels = from_spatial(raw["pixel_values"][index].to(torch.uint8), shape)
            of_part = {name: inputs[name][index : index + 1] for name in names}
            embeddings, _ = features_of(model, of_part)
            parts.append(dict(
                shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
                num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
            ))
        text = whole.replace_image_token(inputs, 0, use_image_special_tokens=True, **settings)
        items.append(dict(
            height=size[0], width=size[1], parts=list(range(first, len(parts))),
            tokens=whole.tokenizer(text, add_special_tokens=False)["input_ids"],
        ))
    prompts = []
    for chosen in ([1], [3, 2, 4]):
        generator = torch.Generator().manual_seed(len(chosen))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in chosen:
            after = text(4)
            tokens += items[index]["tokens"] + after
            placed += [token] + after
        ids = torch.tensor([tokens])
        inputs = inputs_of_sizes([SIZES[index] for index in chosen])
        inputs = {name: inputs[name] for name in names}
        logits = logits_of(model, ids, inputs)
        prompts.append(dict(
            token_ids=tokens, items=chosen, positions=None, placed_token_ids=placed,
            images=[part for index in chosen for part in items[index]["parts"]],
            last_log_probs=rounded(logits[-1].log_softmax(-1)),
            greedy_token_ids=greedy_tokens(model, ids, inputs),
        ))
    golden = dict(kwargs=kwargs, items=items, images=parts, prompts=prompts, joined=[])
    (folder / "pan_and_scan.json").write_text(json.dumps(golden) + "\n")


# The models that cut images into slices, and the settings of a request.
SLICE_MODELS = {
    "minicpmv4_6": dict(max_slice_nums=6), "minicpmv4_6-wide": dict(max_slice_nums=9),
}


@torch.no_grad()
def record_slices(name, kwargs):
    """Records images in slices in the form of those with crops."""
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = whole_processor(model, AutoImageProcessor.from_pretrained(folder))
    processor, token, parts, items = whole.image_processor, model.config.image_token_id, [], []
    drawn = lambda sizes: [Image.fromarray(draw(*size)) for size in sizes]
    inputs_of_sizes = lambda sizes: processor(drawn(sizes), return_tensors="pt", **kwargs)
    for size in SIZES:
        processor.do_rescale = processor.do_normalize = False
        raw = inputs_of_sizes([size])
        processor.do_rescale = processor.do_normalize = True
        inputs, first = inputs_of_sizes([size]), len(parts)
        output = model.get_image_features(inputs["pixel_values"], inputs["target_sizes"])
        images = from_packed(raw["pixel_values"].to(torch.uint8), raw["target_sizes"])
        for pixels, embeddings in zip(images, output.pooler_output):
            parts.append(dict(
                shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
                num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
            ))
        text = whole.replace_image_token(inputs, 0, image_token_divisor=16)
        items.append(dict(
            height=size[0], width=size[1], parts=list(range(first, len(parts))),
            tokens=whole.tokenizer(text, add_special_tokens=False)["input_ids"],
        ))
    prompts = []
    for chosen in ([1], [3, 2, 4]):
        generator = torch.Generator().manual_seed(len(chosen))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for at, index in enumerate(chosen):
            after = text(4)
            tokens += number_of(model.config, at) + items[index]["tokens"] + after
            placed += [token] + after
        ids = torch.tensor([tokens])
        inputs = inputs_of_sizes([SIZES[index] for index in chosen])
        inputs = {name: inputs[name] for name in ("pixel_values", "target_sizes")}
        logits = logits_of(model, ids, inputs)
        prompts.append(dict(
            token_ids=tokens, items=chosen, positions=None, placed_token_ids=placed,
            images=[part for index in chosen for part in items[index]["parts"]],
            last_log_probs=rounded(logits[-1].log_softmax(-1)),
            greedy_token_ids=greedy_tokens(model, ids, inputs),
        ))
    # The processor asks for one, and pads nothing.
    whole.tokenizer.pad_token, joined = whole.image_end_token, []
    for text in ["{}", "Look:\n{}\nWhat?", "a {}{} b", "{} {} {}"]:
        images = drawn([(24, 60)] * text.count("{}"))
        text = text.replace("{}", whole.image_token)
        expected = whole(images=[images], text=[text], **kwargs)["input_ids"][0]
        joined.append(dict(
            token_ids=whole.tokenizer(text)["input_ids"], expanded=expected.tolist(),
        ))
    golden = dict(kwargs=kwargs, items=items, images=parts, prompts=prompts, joined=joined)
    (folder / "pan_and_scan.json").write_text(json.dumps(golden) + "\n")


def crop_inputs(whole, sizes, kwargs):
    """Returns what the processor of images makes of some, with the defaults of the whole one."""
    drawn = [Image.fromarray(draw(*size)) for size in sizes]
    return whole.image_processor(drawn, return_tensors="pt", **whole.images_kwargs | kwargs)


def crop_item(model, whole, size, kwargs, parts):
    """Returns an image with its crops, whose records are added to `parts`."""
    processor = whole.image_processor
    processor.do_rescale = processor.do_normalize = False
    raw = crop_inputs(whole, [size], kwargs)["pixel_values"].to(torch.uint8)
    processor.do_rescale = processor.do_normalize = True
    inputs = crop_inputs(whole, [size], kwargs)
    first = len(parts)
    for pixels, values in zip(raw, inputs["pixel_values"]):
        embeddings, _ = features_of(model, dict(pixel_values=values[None]))
        pixels = pixels.permute(1, 2, 0)[None]
        parts.append(dict(
            shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
            num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
        ))
    text = whole.replace_image_token(inputs, 0)
    tokens = whole.tokenizer(text, add_special_tokens=False)["input_ids"]
    return dict(
        height=size[0], width=size[1], parts=list(range(first, len(parts))), tokens=tokens,
    )


@torch.no_grad()
def record_crops(name, kwargs):
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = whole_processor(model, AutoImageProcessor.from_pretrained(folder))
    kwargs = dict(do_pan_and_scan=True, **kwargs)
    parts, prompts, token = [], [], model.config.image_token_id
    items = [crop_item(model, whole, size, kwargs, parts) for size in SIZES]
    for chosen in ([2], [1, 0, 4]):
        generator = torch.Generator().manual_seed(len(chosen))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in chosen:
            after = text(4)
            tokens += items[index]["tokens"] + after
            placed += [model.config.boi_token_index] + after
        ids = torch.tensor([tokens])
        inputs = crop_inputs(whole, [SIZES[index] for index in chosen], kwargs)
        inputs = dict(pixel_values=inputs["pixel_values"], token_type_ids=(ids == token).int())
        greedy = greedy_tokens(model, ids, inputs)
        logits = logits_of(model, ids, inputs)
        prompts.append(dict(
            token_ids=tokens, items=chosen, positions=None, placed_token_ids=placed,
            images=[part for index in chosen for part in items[index]["parts"]],
            last_log_probs=rounded(logits[-1].log_softmax(-1)), greedy_token_ids=greedy,
        ))
    joined = []
    for text in ["{}", "Look:\n{}\nWhat?", "a\n{}{}b\n\n"]:
        drawn = [Image.fromarray(draw(24, 60))] * text.count("{}")
        text = text.replace("{}", whole.boi_token)
        expected = whole(images=drawn, text=text, **kwargs)["input_ids"][0]
        joined.append(dict(token_ids=whole.tokenizer(text)["input_ids"], expanded=list(expected)))
    golden = dict(kwargs=kwargs, items=items, images=parts, prompts=prompts, joined=joined)
    (folder / "pan_and_scan.json").write_text(json.dumps(golden) + "\n")


# Videos: frames, height, width, and frames a second, if they are known. None is longer in time than
# in space, because transformers 5 places the text after those otherwise than transformers 4 and vLLM.
VIDEOS = [(4, 60, 56, 10.0), (6, 33, 90, 7.0), (3, 70, 40, None)]
# One more for GLM, which takes few frames of a second.
GLM_VIDEOS = VIDEOS[:2] + [(5, 33, 50, 2.0)]
# The models that take videos, and the fields of their processors.
VIDEO_MODELS = {
    "exaone4_5": {}, "exaone4_5-one": dict(fps=4), "qwen2_vl": {}, "qwen2_5_vl": {},
    "qwen2_5_vl-wide": dict(do_sample_frames=True, fps=3),
    "qwen3_vl": {}, "qwen3_vl-one": dict(fps=5, min_frames=2), "qwen3_5": dict(max_frames=4),
    "glm4v": dict(fps=8, max_duration=40),
    "glm4v_moe": dict(video_processor_type="Glm46VVideoProcessor"),
    "glm4v-pairs": dict(video_processor_type="Glm46VVideoProcessor"),
    "glm_ocr": dict(video_processor_type="Glm46VVideoProcessor"),
}
# Numbers of frames, and frames a second, of videos of which only the sampling is recorded.
LENGTHS = [(1, 3.0), (7, 29.97), (50, 24.0), (90, 12.5), (900, 30.0), (1501, 25.0), (15_000, 24.0)]
VISION_TAGS = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
GLM_TAGS = [
    "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
    "<|image|>", "<|video|>",
]


def draw_video(frames, height, width):
    """Returns the frames that the tests draw by the same formula, each 10 columns further."""
    wide = draw(height, width + 10 * frames)
    return np.stack([wide[:, 10 * at : 10 * at + width] for at in range(frames)])


def video_tokenizer(config):
    """Returns a tokenizer of the corpus in which the tokens of `config` have their ids."""
    is_glm = config.model_type in GLMS
    trained = train_tokenizer(config.image_start_token_id if is_glm else config.image_token_id)
    words = PreTrainedTokenizerFast(tokenizer_object=getattr(trained, "backend_tokenizer", trained))
    if is_glm:
        words.add_special_tokens(dict(additional_special_tokens=GLM_TAGS))
        assert words.convert_tokens_to_ids(GLM_TAGS[5]) == config.video_token_id
        return words
    words.add_special_tokens(dict(additional_special_tokens=VISION_TAGS))
    assert words.convert_tokens_to_ids(VISION_TAGS[3]) == config.vision_end_token_id
    return words


def video_processor(model, folder, fields):
    """Returns the whole processor of a model, whose videos have the fields of its images."""
    kind, config = model.config.model_type, model.config
    of_images = json.loads((folder / "preprocessor_config.json").read_text())
    of_images.pop("image_processor_type")
    images = AutoImageProcessor.from_pretrained(folder)
    if kind in GLMS:
        is_new = fields.get("video_processor_type") == "Glm46VVideoProcessor"
        videos = Glm46VVideoProcessor if is_new else Glm4vVideoProcessor
        whole = Glm46VProcessor if is_new else Glm4vProcessor
        videos = videos(**of_images | fields)
        return whole(images, video_tokenizer(config), videos, chat_template="none")
    is_timed = kind in ("qwen3_vl", "qwen3_5")
    videos = (Qwen3VLVideoProcessor if is_timed else Qwen2VLVideoProcessor)(**of_images | fields)
    whole = {"qwen2_vl": Qwen2VLProcessor, "qwen2_5_vl": Qwen2_5_VLProcessor}
    whole |= {"exaone4_5": Qwen2VLProcessor}
    whole = whole.get(kind, Qwen3VLProcessor)
    return whole(images, video_tokenizer(config), videos, chat_template="none")


def video_pixels(values, grid, processor):
    """Returns the bytes of frames, [frames, height, width, 3], of patches that were not rescaled."""
    frames, rows, columns = grid
    merge, side, temporal = processor.merge_size, processor.patch_size, processor.temporal_patch_size
    patches = values.to(torch.uint8).reshape(
        frames, rows // merge, columns // merge, merge, merge, 3, temporal, side, side
    )
    patches = patches.permute(0, 6, 1, 3, 7, 2, 4, 8, 5)
    return patches.reshape(frames * temporal, rows * side, columns * side, 3)


def is_of_glm(whole):
    return isinstance(whole, (Glm4vProcessor, Glm46VProcessor))


def video_metadata(frames, fps):
    """Returns what the decoders of videos tell."""
    duration = frames / fps if fps else None
    return dict(total_num_frames=frames, fps=fps, duration=duration)


def video_inputs(whole, videos):
    """Returns the tokens and the model's inputs of videos one after the other."""
    of = lambda it: video_metadata(it[0], it[3])
    token = "<|video|>" if is_of_glm(whole) else "<|video_pad|>"
    arrays = [draw_video(*it[:3]).transpose(0, 3, 1, 2) for it in videos]
    return whole(
        text="".join(token for _ in videos), videos=arrays,
        video_metadata=[of(it) for it in videos], return_tensors="pt", return_metadata=True,
    )


def whole_frames(processor, video):
    """Returns the number of frames that are processed, before the last is repeated."""
    if not processor.do_sample_frames:
        return video[0]
    metadata = VideoMetadata(**video_metadata(video[0], video[3]))
    return len(processor.sample_frames(metadata))


def video_record(model, whole, video):
    processor = whole.video_processor
    needs_rate = is_of_glm(whole) or isinstance(whole, Qwen2_5_VLProcessor)
    if processor.do_sample_frames and video[3] is None and needs_rate:
        return None
    processor.do_rescale = processor.do_normalize = False
    raw = video_inputs(whole, [video])
    processor.do_rescale = processor.do_normalize = True
    inputs = video_inputs(whole, [video])
    metadata, grid = raw["video_metadata"][0], raw["video_grid_thw"][0].tolist()
    pixels = video_pixels(raw["pixel_values_videos"], grid, processor)
    indices = metadata.frames_indices
    indices = range(video[0]) if indices is None else indices
    # Timestamps may have repeated the last one.
    indices = [int(index) for index in indices][: whole_frames(processor, video)]
    pixels = pixels[: len(indices)]
    merge = model.config.vision_config.spatial_merge_size
    output = model.get_video_features(
        inputs["pixel_values_videos"], inputs["video_grid_thw"], return_dict=True,
    )
    whole_of = lambda parts: parts if torch.is_tensor(parts) else torch.cat(list(parts), dim=0)
    embeddings = whole_of(output.pooler_output).flatten(0, -2)
    deep = getattr(output, "deepstack_features", None) or []
    frames, height, width, fps = video
    return dict(
        frames=frames, height=height, width=width, fps=fps, indices=indices,
        shape=list(pixels.shape), pixels=pixels.numpy().tobytes().hex(),
        grid=[grid[0], grid[1] // merge, grid[2] // merge], num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[rounded(whole_of(it)) for it in deep],
        tokens=inputs["input_ids"][0].tolist(),
    )


def video_prompt(model, whole, videos, records):
    """Runs a prompt of text with videos in it."""
    config, generator = model.config, torch.Generator().manual_seed(len(videos))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    is_timed, is_glm = isinstance(whole, Qwen3VLProcessor), is_of_glm(whole)
    marks = ([config.video_start_token_id], [config.video_end_token_id]) if is_glm else (
        [config.vision_start_token_id], [config.vision_end_token_id]
    )
    for record in records:
        after = text(4)
        around = marks if is_glm else ([], [])
        tokens += around[0] + record["tokens"] + around[1] + after
        token = [config.video_token_id]
        placed += (marks[0] + token + marks[1] if is_timed or is_glm else token) + after
    ids = torch.tensor([tokens])
    inputs = dict(video_inputs(whole, videos))
    inputs = {
        name: inputs[name] for name in ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts")
        if name in inputs
    }
    kinds = 2 * (ids == (config.image_token_id if is_glm else config.video_token_id)).int()
    positions = None
    if has_axes(model):
        inputs["mm_token_type_ids"] = kinds
        index = {name: it for name, it in inputs.items() if name != "pixel_values_videos"}
        positions, _ = model.model.get_rope_index(ids, **index)
        positions = positions[:, 0].T.tolist()
    logits = model(input_ids=ids, use_cache=False, **inputs).logits[0]
    return dict(
        token_ids=tokens, positions=positions,
        last_log_probs=rounded(logits[-1].log_softmax(-1)), placed_token_ids=placed,
        greedy_token_ids=greedy_tokens(model, ids, inputs),
    )


def internvl_videos(folder, model, fields):
    """Returns the whole processor of InternVL, whose frames have the fields of its images."""
    of_images = json.loads((folder / "preprocessor_config.json").read_text())
    of_images.pop("image_processor_type")
    whole = whole_processor(model, AutoImageProcessor.from_pretrained(folder))
    whole.video_processor = InternVLVideoProcessor(**of_images | fields)
    return whole


def tile_video_record(model, whole, video):
    """Returns a video whose frames are tiles."""
    processor, (frames, height, width, fps) = whole.video_processor, video
    if processor.do_sample_frames and fps is None:
        return None
    array = draw_video(frames, height, width).transpose(0, 3, 1, 2)
    made = lambda: processor(
        [array], video_metadata=[video_metadata(frames, fps)], return_tensors="pt",
        return_metadata=True,
    )
    processor.do_rescale = processor.do_normalize = False
    raw = made()
    processor.do_rescale = processor.do_normalize = True
    inputs = made()
    pixels = raw["pixel_values_videos"][0].to(torch.uint8).permute(0, 2, 3, 1)
    embeddings, _ = features_of(model, dict(pixel_values=inputs["pixel_values_videos"][0]))
    indices = raw["video_metadata"][0].frames_indices
    indices = range(frames) if indices is None else indices
    text = whole.replace_video_token(inputs, 0)
    return dict(
        frames=frames, height=height, width=width, fps=fps, grid=None,
        indices=[int(index) for index in indices], shape=list(pixels.shape),
        pixels=pixels.contiguous().numpy().tobytes().hex(), num_embeds=len(embeddings),
        embeddings=rounded(embeddings), by_layer=[],
        tokens=whole.tokenizer(text, add_special_tokens=False)["input_ids"],
    ), inputs["pixel_values_videos"][0]


# The models whose videos are tiles, and the fields of their processors.
TILE_VIDEO_MODELS = {
    "internvl": {}, "internvl-norms": dict(do_sample_frames=True, fps=6),
    "internvl-experts": dict(do_sample_frames=True, num_frames=2, initial_shift=0.5),
}


@torch.no_grad()
def record_tile_videos(name, fields):
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = internvl_videos(folder, model, fields)
    pairs = [tile_video_record(model, whole, video) for video in VIDEOS]
    pairs = [pair for pair in pairs if pair]
    words, prompts = whole.tokenizer, []
    for chosen in ([1], [0, 1]):
        generator = torch.Generator().manual_seed(len(chosen))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in chosen:
            after = text(4)
            tokens += pairs[index][0]["tokens"] + after
            placed += [words.convert_tokens_to_ids("<video>")] + after
        ids = torch.tensor([tokens])
        inputs = dict(pixel_values=torch.cat([pairs[index][1] for index in chosen]))
        logits = logits_of(model, ids, inputs)
        prompts.append(dict(
            token_ids=tokens, images=chosen, positions=None, placed_token_ids=placed,
            last_log_probs=rounded(logits[-1].log_softmax(-1)),
            greedy_token_ids=greedy_tokens(model, ids, inputs),
        ))
    texts = ["<img>", "</img>", "<video>", "Frame1: "]
    texts += [f"\nFrame{frame}: " for frame in range(2, 9)]
    texts = {text: words(text, add_special_tokens=False)["input_ids"] for text in texts}
    golden = dict(videos=[pair[0] for pair in pairs], prompts=prompts, texts=texts)
    if fields:
        sample = whole.video_processor.sample_frames
        of = lambda frames, fps: sample(
            VideoMetadata(**video_metadata(frames, fps)), fps=whole.video_processor.fps
        )
        lengths = [(frames, fps) for frames, fps in LENGTHS if frames > 6]
        golden["lengths"] = [
            dict(frames=frames, fps=fps, indices=of(frames, fps).tolist())
            for frames, fps in lengths if len(of(frames, fps)) <= 768
        ]
        of_images = json.loads((folder / "preprocessor_config.json").read_text())
        of_images.pop("image_processor_type")
        path = folder / "video_preprocessor_config.json"
        path.write_text(json.dumps(of_images | fields, indent=2, sort_keys=True) + "\n")
    words.save_pretrained(folder)
    (folder / "videos.json").write_text(json.dumps(golden) + "\n")


# The models whose frames are pooled, and the fields of their processors.
POOLED_VIDEO_MODELS = {
    # Frames are cut from larger ones.
    "llava_next_video": dict(size=dict(shortest_edge=32)),
    "llava_next_video-wide": dict(size=dict(shortest_edge=40)),
    "llava_onevision": {}, "llava_onevision-odd": dict(do_sample_frames=True, num_frames=3),
}


def pooled_video(model, whole, video):
    """Returns the record of a video whose frames are pooled, and its embeddings."""
    processor, (frames, height, width, fps) = whole.video_processor, video
    array = draw_video(frames, height, width).transpose(0, 3, 1, 2)
    made = lambda: processor(
        [array], video_metadata=[video_metadata(frames, fps)], return_tensors="pt",
        return_metadata=True,
    )
    processor.do_rescale = processor.do_normalize = False
    raw = made()
    processor.do_rescale = processor.do_normalize = True
    inputs = made()
    pixels = raw["pixel_values_videos"][0].to(torch.uint8).permute(0, 2, 3, 1)
    embeddings = model.get_video_features(inputs["pixel_values_videos"]).pooler_output
    embeddings = embeddings[0] if torch.is_tensor(embeddings) else torch.cat(list(embeddings))
    embeddings = embeddings.flatten(0, -2)
    indices = raw["video_metadata"][0].frames_indices
    indices = range(frames) if indices is None else indices
    text = whole.replace_video_token(inputs, 0)
    return dict(
        frames=frames, height=height, width=width, fps=fps, grid=None,
        indices=[int(index) for index in indices], shape=list(pixels.shape),
        pixels=pixels.contiguous().numpy().tobytes().hex(), num_embeds=len(embeddings),
        # Pooled frames, and the vector behind the last one, if the class has it.
        tiles=[1 + (model.config.model_type == "llava_onevision"), 0],
        embeddings=rounded(embeddings), by_layer=[],
        tokens=whole.tokenizer(text, add_special_tokens=False)["input_ids"],
    ), embeddings


def placed_prompt(model, ids, token, features, count=12):
    """Returns the log-probabilities after a prompt with embeddings in the places of `token`, and
    the likeliest tokens."""
    states, greedy, first = model.get_input_embeddings()(ids), [], None
    states = states.masked_scatter((ids == token)[..., None].expand_as(states), features)
    for _ in range(count):
        row = model(inputs_embeds=states, use_cache=False).logits[0, -1].log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        greedy.append(int(row.argmax()))
        after = model.get_input_embeddings()(row.argmax()[None, None])
        states = torch.cat([states, after], dim=1)
    return dict(last_log_probs=rounded(first), greedy_token_ids=greedy)


@torch.no_grad()
def record_pooled_videos(name, fields):
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = whole_processor(model, AutoImageProcessor.from_pretrained(folder))
    of_images = json.loads((folder / "preprocessor_config.json").read_text())
    for field in ("image_processor_type", "image_grid_pinpoints"):
        of_images.pop(field)
    is_onevision = model.config.model_type == "llava_onevision"
    videos = LlavaOnevisionVideoProcessor if is_onevision else LlavaNextVideoVideoProcessor
    whole.video_processor = videos(**of_images | fields)
    pairs = [pooled_video(model, whole, video) for video in VIDEOS]
    token, prompts = model.config.video_token_index, []
    for chosen in ([1], [2, 0]):
        generator = torch.Generator().manual_seed(len(chosen))
        text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
        tokens = text(3)
        placed = list(tokens)
        for index in chosen:
            after = text(4)
            tokens += pairs[index][0]["tokens"] + after
            placed += [token] + after
        features = torch.cat([pairs[index][1] for index in chosen])
        prompts.append(dict(
            token_ids=tokens, images=chosen, positions=None, placed_token_ids=placed,
            **placed_prompt(model, torch.tensor([tokens]), token, features),
        ))
    golden = dict(videos=[pair[0] for pair in pairs], prompts=prompts, texts={})
    if "do_sample_frames" in fields:
        sample = whole.video_processor.sample_frames
        golden["lengths"] = [
            dict(frames=frames, fps=fps, indices=[
                int(at) for at in sample(VideoMetadata(**video_metadata(frames, fps)))
            ])
            for frames, fps in LENGTHS if frames > 6
        ]
    if fields:
        path = folder / "video_preprocessor_config.json"
        path.write_text(json.dumps(of_images | fields, indent=2, sort_keys=True) + "\n")
    (folder / "videos.json").write_text(json.dumps(golden) + "\n")


@torch.no_grad()
def record_videos(name, fields):
    folder = HERE / "vision" / name
    load = AutoModelForImageTextToText.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    whole = video_processor(model, folder, fields)
    videos = GLM_VIDEOS if is_of_glm(whole) else VIDEOS
    records = [video_record(model, whole, video) for video in videos]
    pairs = [(video, record) for video, record in zip(videos, records) if record]
    prompts = []
    for of_prompt in ([1], [2, 1] if is_of_glm(whole) else [0, 1]):
        chosen = [pairs[index] for index in of_prompt]
        record = video_prompt(model, whole, [it[0] for it in chosen], [it[1] for it in chosen])
        prompts.append(record | dict(images=list(of_prompt)))
    words = whole.tokenizer
    times = {f"<{at / 10:.1f} seconds>" for at in range(100)}
    if is_of_glm(whole):
        times = {f"{at / 10:.1f} seconds" for at in range(100)} | {str(at) for at in range(10)}
    texts = {text: words(text, add_special_tokens=False)["input_ids"] for text in sorted(times)}
    golden = dict(videos=[it[1] for it in pairs], prompts=prompts, texts=texts)
    if is_of_glm(whole):
        sample = whole.video_processor.sample_frames
        lengths = [
            dict(frames=frames, fps=fps, indices=sample(
                VideoMetadata(**video_metadata(frames, fps))
            ).tolist())
            for frames, fps in LENGTHS
        ]
        # A video may be too short for a frame.
        golden["lengths"] = [length for length in lengths if length["indices"]]
    words.save_pretrained(folder)
    (folder / "videos.json").write_text(json.dumps(golden) + "\n")
    if fields:
        of_images = json.loads((folder / "preprocessor_config.json").read_text())
        of_images.pop("image_processor_type")
        path = folder / "video_preprocessor_config.json"
        path.write_text(json.dumps(of_images | fields, indent=2, sort_keys=True) + "\n")


def flat(folder):
    """Gives the config of PaddleOCR-VL its published form: the fields of the text model beside the
    others."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    parameters = text.pop("rope_parameters")
    text["rope_theta"] = parameters.pop("rope_theta")
    text["rope_scaling"] = parameters | dict(type="default")
    config["vision_config"]["model_type"] = config["model_type"]
    config["vision_config"].pop("rope_parameters")
    config = text | config | dict(torch_dtype=config.pop("dtype"), transformers_version="4.55.0")
    config.pop("dtype", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def with_mistral3(folder):
    """Gives the config of LightOnOCR its first form, which transformers does not read: that of
    Mistral 3."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= dict(
        architectures=["LightOnOCRForConditionalGeneration"], model_type="mistral3",
        image_token_index=config.pop("image_token_id"), multimodal_projector_bias=False,
        projector_hidden_act="gelu", vision_feature_layer=-1,
    )
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def with_interns1(folder):
    """Gives InternVL's form to Intern-S1, which transformers does not read: the names of its config
    and the places of transformers 4.52. vLLM has the same tower, projector and images for both."""
    wrappers.inside(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= dict(architectures=["InternS1ForConditionalGeneration"], model_type="interns1")
    config["vision_config"] |= dict(
        architectures=["InternS1VisionModel"], model_type="interns1_vision",
    )
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def build(name, config, processor):
    folder = HERE / "vision" / name
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    randomize(model, seed=sum(name.encode()))
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if config.model_type == "gemma3":
        gemma_tokenizer().save_pretrained(folder)
    if config.model_type in GLMS + ("lighton_ocr", "paddleocr_vl"):
        tokenizer().save_pretrained(folder)
    if config.model_type in COHERES:
        cohere_tokenizer().save_pretrained(folder)
    if config.model_type == "paligemma":
        pali_tokenizer().save_pretrained(folder)
    if config.model_type == "minicpmv4_6":
        minicpm_tokenizer().save_pretrained(folder)
    if config.model_type == "lfm2_vl":
        lfm2_tokenizer().save_pretrained(folder)
    if config.model_type == "blip-2":
        tokenizer().save_pretrained(folder)
    if config.model_type == "ovis2":
        ovis_tokenizer().save_pretrained(folder)
    if config.model_type == "llama4":
        llama4_tokenizer().save_pretrained(folder)
    if config.model_type in ("llava_next_video", "llava_onevision", "got_ocr2"):
        tokenizer().save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(processor, indent=2, sort_keys=True) + "\n")
    if name == "paddleocr_vl":
        flat(folder)
    record(folder)
    if name.startswith("lighton_ocr-mistral3"):
        with_mistral3(folder)
    if name.startswith("interns1"):
        with_interns1(folder)


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--record"]:
        for folder in sys.argv[2:]:
            record(Path(folder))
        return
    if sys.argv[1:2] == ["--videos"]:
        for name in sys.argv[2:] or VIDEO_MODELS | TILE_VIDEO_MODELS | POOLED_VIDEO_MODELS:
            if name in POOLED_VIDEO_MODELS:
                record_pooled_videos(name, POOLED_VIDEO_MODELS[name])
            elif name in TILE_VIDEO_MODELS:
                record_tile_videos(name, TILE_VIDEO_MODELS[name])
            else:
                record_videos(name, VIDEO_MODELS[name])
            print(name, flush=True)
        return
    if sys.argv[1:2] == ["--crops"]:
        for name in sys.argv[2:] or CROP_MODELS | CUT_MODELS | SLICE_MODELS:
            if name in SLICE_MODELS:
                record_slices(name, SLICE_MODELS[name])
            elif name in CUT_MODELS:
                record_cuts(name, CUT_MODELS[name])
            else:
                record_crops(name, CROP_MODELS[name])
            print(name, flush=True)
        return
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name]())
        print(name, flush=True)


if __name__ == "__main__":
    main()
