"""Builds the models of dots.ocr for the vision tests and records the answers of its authors' code.

    python tests/fidelity/make_dots_ocr.py modeling_dots_vision.py            # all of them
    python tests/fidelity/make_dots_ocr.py modeling_dots_vision.py dots_ocr   # some of them

The argument is the file of the tower in the authors' folder (rednote-hilab/dots.ocr) or in a copy.
The text model and the image processor are those of transformers, which the authors' classes derive
from. Each model is a folder as `make_vision.py` writes it.

Needs what `make_vision.py` needs. Nothing is downloaded.
"""

import json
import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, PreTrainedConfig, Qwen2Config, Qwen2ForCausalLM

from make_vision import CLIP, HERE, SIZES, draw, grid_of, placed_prompt, randomize, rounded
from make_vision import text_config, tokenizer

# The token of an embedding.
IMAGE = 508
PROMPTS = ([], [1], [3, 2], [4, 0, 4])


class DotsVisionConfig(PreTrainedConfig):
    """The config that the file of the tower imports: its authors' fields and defaults."""

    model_type = "dots_vit"

    def __init__(self, **fields):
        defaults = dict(
            num_channels=3, spatial_merge_size=2, temporal_patch_size=1, rms_norm_eps=1e-5,
            use_bias=False, attn_implementation="sdpa", init_merger_std=0.02, is_causal=False,
            post_norm=True, gradient_checkpointing=False,
        )
        super().__init__()
        for name, value in (defaults | fields).items():
            setattr(self, name, value)


def tower_class(path):
    """Returns the class of the tower. The modules that it imports beside torch are replaced."""
    outside = ("from relax", "from .configuration", "from flash_attn")
    lines = [line for line in path.read_text().splitlines() if not line.startswith(outside)]
    module = dict(
        __name__="modeling_dots_vision", DotsVisionConfig=DotsVisionConfig,
        get_logger=lambda name: None, flash_attn_varlen_func=None,
    )
    exec(compile("\n".join(lines), str(path), "exec"), module)
    return module["DotsVisionTransformer"]


def models():
    """Returns the models: the fields of the text model, of the tower, and of the processor."""
    tower = dict(embed_dim=24, hidden_size=32, intermediate_size=36, num_hidden_layers=3)
    tower |= dict(num_attention_heads=2, patch_size=14)
    pixels = dict(
        image_processor_type="Qwen2VLImageProcessor", patch_size=14, merge_size=2,
        temporal_patch_size=1, min_pixels=784, max_pixels=28 * 28 * 12, **CLIP,
    )
    return {
        "dots_ocr": (dict(tie_word_embeddings=False), tower, pixels),
        # Biases, squares of nine patches, and no norm behind the layers.
        "dots_ocr-bias": (
            dict(tie_word_embeddings=True, num_hidden_layers=2),
            tower | dict(
                use_bias=True, post_norm=False, patch_size=4, spatial_merge_size=3,
                num_attention_heads=3, rms_norm_eps=1e-3,
            ),
            pixels | dict(patch_size=4, merge_size=3, min_pixels=144, max_pixels=144 * 30),
        ),
    }


class Model:
    def __init__(self, name, tower):
        text, vision, self.processor = models()[name]
        self.folder, self.vision = HERE / "vision" / name, vision
        fields = text_config("qwen2", **text)
        fields.pop("model_type")
        self.text = Qwen2ForCausalLM._from_config(
            Qwen2Config(**fields), dtype=torch.float32, attn_implementation="eager",
        ).eval()
        self.tower = tower(DotsVisionConfig(**vision)).eval()
        self.config = DotsVisionConfig(vision_config=DotsVisionConfig(**vision))
        for seed, part in enumerate((self.text, self.tower)):
            randomize(part, seed=sum(name.encode()) + seed)
            for parameter in part.parameters():
                parameter.data = parameter.data.to(torch.bfloat16).float()

    def save(self):
        """Writes the folder as the authors' models have it."""
        self.text.save_pretrained(self.folder)
        path = self.folder / "model.safetensors"
        tensors = load_file(path)
        tower = self.tower.state_dict()
        tensors |= {f"vision_tower.{name}": tensor for name, tensor in tower.items()}
        tensors = {name: it.to(torch.bfloat16).contiguous() for name, it in tensors.items()}
        save_file(tensors, path, metadata=dict(format="pt"))
        (self.folder / "generation_config.json").unlink(missing_ok=True)
        path = self.folder / "config.json"
        config = json.loads(path.read_text()) | dict(
            architectures=["DotsOCRForCausalLM"], model_type="dots_ocr", image_token_id=IMAGE,
            video_token_id=509, dtype="bfloat16",
            vision_config=dict(model_type="dots_vit", **self.vision),
        )
        write = lambda file, fields: (self.folder / file).write_text(
            json.dumps(fields, indent=2, sort_keys=True) + "\n"
        )
        write("config.json", config)
        write("preprocessor_config.json", self.processor)
        tokenizer().save_pretrained(self.folder)


def image_record(model, processor, size):
    """Returns an image and its embeddings."""
    image = Image.fromarray(draw(*size))
    processor.do_rescale = processor.do_normalize = False
    raw = processor([image], return_tensors="pt")["pixel_values"].to(torch.uint8)
    processor.do_rescale = processor.do_normalize = True
    inputs = processor([image], return_tensors="pt")
    grid = inputs["image_grid_thw"]
    embeddings = model.tower(inputs["pixel_values"], grid, bf16=False)
    (_, rows, columns), merge, side = grid[0].tolist(), processor.merge_size, processor.patch_size
    pixels = raw.reshape(rows // merge, columns // merge, merge, merge, 3, side, side)
    pixels = pixels.permute(0, 2, 5, 1, 3, 6, 4).reshape(1, rows * side, columns * side, 3)
    return embeddings, dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.contiguous().numpy().tobytes().hex(), grid=grid_of(model, inputs),
        tiles=None, num_embeds=len(embeddings), embeddings=rounded(embeddings), by_layer=[],
        tokens=[IMAGE] * len(embeddings),
    )


def prompt_record(model, records, chosen):
    """Runs a prompt of text with the images of these indices in it."""
    generator = torch.Generator().manual_seed(len(chosen))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    for index in chosen:
        after = text(4)
        tokens += records[index][1]["tokens"] + after
        placed += [IMAGE] + after
    features = [records[index][0] for index in chosen]
    features = torch.cat(features) if features else torch.zeros(0, 32)
    answers = placed_prompt(model.text, torch.tensor([tokens]), IMAGE, features)
    return dict(
        token_ids=tokens, images=list(chosen), positions=None, placed_token_ids=placed, **answers,
    )


@torch.no_grad()
def build(name, tower):
    model = Model(name, tower)
    model.save()
    processor = AutoImageProcessor.from_pretrained(model.folder)
    records = [image_record(model, processor, size) for size in SIZES]
    prompts = [prompt_record(model, records, chosen) for chosen in PROMPTS]
    golden = dict(images=[record for _, record in records], prompts=prompts, texts={})
    (model.folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.set_num_threads(1)
    tower = tower_class(Path(sys.argv[1]))
    for name in sys.argv[2:] or list(models()):
        build(name, tower)
        print(name, flush=True)


if __name__ == "__main__":
    main()
