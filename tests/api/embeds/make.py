"""Writes the embeddings of a picture as transformers computes them, for tests/api/embeds.rs.

Usage: python make.py MODELS (with torch, transformers and pillow)

- MODELS: the folder with the small models.
"""

import pathlib
import sys

import numpy
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

HERE = pathlib.Path(__file__).parent


def channel(y, x, c):
    return numpy.where(c == 0, x * 2, numpy.where(c == 1, y * 3, 9))


picture = Image.fromarray(numpy.fromfunction(channel, (84, 112, 3)).astype(numpy.uint8))
picture.save(HERE / "picture.png")
for name in ("llava", "qwen2_5_vl", "qwen3_vl"):
    folder = f"{sys.argv[1]}/{name}"
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(folder)
    pixels = processor.image_processor(images=[picture], return_tensors="pt")
    with torch.no_grad():
        encoded = model.model.get_image_features(**pixels, return_dict=True)
    # The states of later layers stand behind the embeddings, as vLLM has them.
    deep = getattr(encoded, "deepstack_features", None) or []
    layers = [encoded.pooler_output[0]]
    layers += [layer if torch.is_tensor(layer) else layer[0] for layer in deep]
    torch.save(torch.cat(layers, dim=-1).contiguous(), HERE / f"{name}.pt")
    if "image_grid_thw" in pixels:
        torch.save(pixels["image_grid_thw"], HERE / f"{name}_grid.pt")
