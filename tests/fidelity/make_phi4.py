"""Builds the models of the tests of Phi-4-multimodal and records transformers' answers.

    python tests/fidelity/make_phi4.py             # all of them, into tests/fidelity/phi4
    python tests/fidelity/make_phi4.py phi4-wide   # some of them

Each model is a folder with seeded random weights and the config of its processor, plus
`golden.json`: images and sounds as the processor leaves them, their embeddings, and prompts with
both: token ids, and log-probabilities after the last token, in float32. A sound beside an image
goes through another projector, so it has two results. A wave is a long spectrogram of a formula.

The class of the image processor counts the tokens of a tower with 32 patches on a side, whatever
the tower is. These towers are smaller, and their counts are those of the model. The counts of the
class are recorded for its own settings.

Beside each model is the same one in the form of its authors' code, `phi4mm`, with the matrices of
two adapters beside each weight. Its answers are those of the other folder. The authors have the
sizes of the vision tower in their code: here, `vision_config` has them.

Needs: torch, torchvision, Pillow, transformers >= 5, safetensors. Nothing is downloaded.
"""

import json
import os
import sys
import wave
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    Phi4MultimodalConfig,
    Phi4MultimodalFeatureExtractor,
    Phi4MultimodalForCausalLM,
    Phi4MultimodalProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.phi4_multimodal.image_processing_phi4_multimodal import (
    Phi4MultimodalImageProcessor,
)

from corpus import train_tokenizer
from make_vision import draw, randomize, rounded

HERE = Path(__file__).parent
RATE = 16_000
FIRST_TAG = 440
TAGS = dict(image_token="<|image|>", audio_token="<|audio|>")
IMAGE, AUDIO = FIRST_TAG, FIRST_TAG + 1
# Height and width: whole tiles, tiles with padding on each side, and more tiles than are allowed.
SIZES = [(16, 32), (17, 40), (61, 33), (11, 12), (90, 40), (14, 14)]
SOUNDS = [(["rising"], 4_000), (["noise"], 1_000), (["clicks", "noise"], 7_321), (["rising"], 400)]
# The images of a prompt, and its sounds.
PROMPTS = [([], []), ([1], []), ([3, 2], []), ([], [2]), ([], [1, 0]), ([4], [0]), ([0, 1], [3, 1])]
# Heights and widths of images of which only the count of tokens is recorded.
COUNTED = [
    (448, 448), (449, 100), (100, 449), (1080, 1920), (3000, 4000), (9000, 500), (333, 5000),
    (20, 30), (2689, 2689), (1345, 897),
]


def sound(parts, count):
    """Returns the first samples of sounds one after the other."""
    def read(name):
        with wave.open(str(HERE / "speech" / f"{name}.wav")) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
            samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return samples.astype(np.float32) / 32_768

    return np.concatenate([read(name) for name in parts])[:count]


def tokenizer():
    trained = train_tokenizer(FIRST_TAG)
    words = PreTrainedTokenizerFast(
        tokenizer_object=getattr(trained, "backend_tokenizer", trained), extra_special_tokens=TAGS,
    )
    assert (words.image_token_id, words.audio_token_id) == (IMAGE, AUDIO)
    return words


def config(vision, audio, **text):
    fields = dict(
        vocab_size=448, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        original_max_position_embeddings=1024, bos_token_id=None, eos_token_id=2, pad_token_id=0,
    )
    tower = dict(
        hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=2,
        image_size=16, crop_size=16, patch_size=2, image_token_id=IMAGE,
    )
    ear = dict(
        hidden_size=16, intermediate_size=24, num_blocks=2, num_attention_heads=2,
        ext_pw_out_channel=16, depthwise_separable_out_channel=16, input_size=80,
        nemo_conv_channels=6, bias_max_distance=7, audio_token_id=AUDIO,
    )
    return Phi4MultimodalConfig(
        vision_config=tower | vision, audio_config=ear | audio, **fields | text,
    )


def models():
    short, long = ([1.0 + step * at for at in range(3)] for step in (0.05, 0.75))
    return {
        "phi4": lambda: (
            config({}, {}, rope_parameters=dict(
                rope_type="longrope", rope_theta=10_000.0, partial_rotary_factor=0.75,
                short_factor=short, long_factor=long,
            )),
            dict(dynamic_hd=4),
        ),
        # Patches that do not fill the last square, other activations, and a wider kernel.
        "phi4-wide": lambda: (
            config(
                dict(
                    image_size=14, crop_size=14, feature_layer=-1, num_attention_heads=4,
                    hidden_act="gelu", layer_norm_eps=1e-5, num_hidden_layers=2,
                ),
                dict(
                    hidden_size=24, ext_pw_out_channel=24, depthwise_separable_out_channel=24,
                    num_attention_heads=3, num_blocks=3, kernel_size=5, input_size=12,
                    time_reduction=4, activation="relu", conv_activation="gelu",
                    conv_glu_type="silu", nemo_activation="silu", nemo_conv_channels=4,
                    bias_max_distance=500, bias_symmetric=True,
                ),
                hidden_size=48, num_hidden_layers=3, num_key_value_heads=4,
                tie_word_embeddings=True, rms_norm_eps=1e-6,
            ),
            dict(
                dynamic_hd=2, resample=2, image_mean=[0.4, 0.5, 0.6], image_std=[0.3, 0.5, 0.4],
            ),
        ),
    }


def processors(config, fields):
    """Returns the processors of images and sounds."""
    side = config.vision_config.image_size
    images = Phi4MultimodalImageProcessor(
        size=dict(height=side, width=side), patch_size=config.vision_config.patch_size, **fields,
    )
    audio = config.audio_config
    sounds = Phi4MultimodalFeatureExtractor(
        feature_size=audio.input_size, audio_compression_rate=audio.time_reduction,
    )
    return images, sounds


def image_inputs(images, sizes):
    arrays = [torch.from_numpy(draw(*size)).permute(2, 0, 1) for size in sizes]
    inputs = images(arrays, return_tensors="pt")
    names = ("image_pixel_values", "image_sizes", "image_attention_mask")
    return {name: inputs[name] for name in names}


def features_of(model, projector, inputs):
    """Returns what a projector made of the media of a forward pass, and the log-probabilities."""
    found = []
    hook = projector.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    logits = model(use_cache=False, **inputs).logits[0]
    hook.remove()
    return found[0].reshape(-1, found[0].shape[-1]), logits


def image_record(model, images, size):
    inputs = image_inputs(images, [size])
    images.do_rescale = images.do_normalize = False
    raw = image_inputs(images, [size])["image_pixel_values"]
    images.do_rescale = images.do_normalize = True
    pixels = raw[0, 1:].to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    side = model.config.vision_config.image_size
    rows, columns = (inputs["image_sizes"][0] // side).tolist()
    mask = inputs["image_attention_mask"][0, 1:].bool()
    patches = mask.shape[-1]
    whole = mask.reshape(rows, columns, patches, patches).transpose(1, 2)
    whole = whole.reshape(rows * patches, columns * patches)
    used = [int(whole[:, 0].sum()), int(whole[0].sum())]
    embed = model.model.embed_tokens_extend.image_embed
    half = -(-patches // 2)
    halved = mask[:, ::2, ::2].reshape(rows, columns, half, half).transpose(1, 2)
    halved = halved.reshape(rows * half, columns * half)
    count = int(halved.sum()) + int(halved[:, 0].sum()) + 1 + half * (half + 1)
    ids = torch.tensor([[5] + [IMAGE] * count + [6]])
    embeddings, _ = features_of(model, embed.img_projection_down, dict(input_ids=ids, **inputs))
    assert len(embeddings) == count
    return dict(
        height=size[0], width=size[1], shape=list(pixels.shape),
        pixels=pixels.numpy().tobytes().hex(), tiles=[rows, columns, *used, 0],
        whole=rounded(inputs["image_pixel_values"][0, 0]), num_embeds=count,
        embeddings=rounded(embeddings),
    )


def pillow_record(images, record):
    """Returns the pixels of an image in the authors' code, which resizes with Pillow."""
    rows, columns = record["tiles"][:2]
    side, height, width = images.size["height"], record["height"], record["width"]
    whole = (columns * side, rows * side)
    of_width, of_height = whole[0] / width, whole[1] / height
    size = (whole[0], int(height * of_width))
    size = size if of_width < of_height else (int(width * of_height), whole[1])
    image = Image.fromarray(draw(height, width))
    # In two steps, because Pillow 13 may change the height first.
    image = image.resize((size[0], height), Image.BILINEAR).resize(size, Image.BILINEAR)
    padded = Image.new("RGB", whole, (255, 255, 255))
    padded.paste(image, (0, 0))
    raw = torch.from_numpy(np.array(padded))
    mean, std = torch.tensor(images.image_mean), torch.tensor(images.image_std)
    mode = {2: "bilinear", 3: "bicubic"}[int(images.resample)]
    values = ((raw.float() / 255 - mean) / std).permute(2, 0, 1)[None]
    small = torch.nn.functional.interpolate(values, size=(side, side), mode=mode)
    tiles = raw.reshape(rows, side, columns, side, 3).permute(0, 2, 1, 3, 4).contiguous()
    return dict(pixels=tiles.numpy().tobytes().hex(), whole=rounded(small))


def sound_features(model, count, inputs):
    """Returns the embeddings of a sound alone, and beside an image."""
    embed = model.model.embed_tokens_extend.audio_embed
    ids, states = torch.tensor([[AUDIO] * count]), torch.zeros(1, count, model.config.hidden_size)
    sizes = torch.tensor([count])
    of = lambda mode: embed(
        ids, states, **inputs, audio_embed_sizes=sizes, audio_projection_mode=mode,
    )[0]
    return of("speech"), of("vision")


def sound_record(model, sounds, parts, count):
    inputs = sounds([sound(parts, count)], sampling_rate=RATE, return_tensors="pt")
    [num_embeds] = inputs["audio_embed_sizes"].tolist()
    features = inputs["audio_input_features"]
    alone, beside = sound_features(model, num_embeds, dict(audio_input_features=features))
    return dict(
        parts=parts, count=count, shape=list(features.shape[1:]), mel=rounded(features),
        num_embeds=num_embeds, embeddings=rounded(alone), beside=rounded(beside),
    )


def wave_record(model, frames):
    """Returns a sound of more embeddings than attend to each other. Some of them are recorded."""
    bins = model.config.audio_config.input_size
    time, at = np.meshgrid(np.arange(frames), np.arange(bins), indexing="ij")
    mel = torch.from_numpy(((time * 7 + at * 13) % 31 / 16 - 1).astype(np.float32))[None]
    count = -(-frames // model.config.audio_config.time_reduction)
    alone, _ = sound_features(model, count, dict(audio_input_features=mel))
    rows = [0, 1, 250, 498, 499, 500, 501, count - 1]
    return dict(
        frames=frames, bins=bins, num_embeds=count, rows=rows, embeddings=rounded(alone[rows]),
    )


def media_inputs(model, images, sounds, of_images, of_sounds):
    """Returns the model's inputs of a prompt's media. The mask of the audio encoder is added to
    scores as a number, so the padding of a batch would change its sounds: they are encoded alone.
    """
    inputs = {}
    if of_images:
        inputs |= image_inputs(images, [SIZES[index] for index in of_images])
    of = lambda index: sounds([sound(*SOUNDS[index])], sampling_rate=RATE, return_tensors="pt")
    return inputs, [of(index)["audio_input_features"] for index in of_sounds]


def embedded(model, ids, inputs, features):
    """Returns the states before the first layer."""
    base = model.model
    states = base.embed_tokens(ids)
    if inputs:
        states = base.embed_tokens_extend(ids, states, **inputs)
    if features:
        reduction = model.config.audio_config.time_reduction
        counts = [-(-it.shape[1] // reduction) for it in features]
        each = [
            sound_features(model, count, dict(audio_input_features=it))[1 if inputs else 0]
            for count, it in zip(counts, features)
        ]
        states = states.index_put(torch.nonzero(ids == AUDIO, as_tuple=True), torch.cat(each))
    return states


def prompt_record(model, images, sounds, records, of_prompt):
    of_images, of_sounds = of_prompt
    generator = torch.Generator().manual_seed(len(of_images) + 10 * len(of_sounds))
    text = lambda count: torch.randint(5, 400, (count,), generator=generator).tolist()
    tokens = text(3)
    placed = list(tokens)
    items = [(IMAGE, records[0][index]) for index in of_images]
    items += [(AUDIO, records[1][index]) for index in of_sounds]
    for token, record in items:
        after = text(4)
        tokens += [token] * record["num_embeds"] + after
        placed += [token] + after
    ids = torch.tensor([tokens])
    inputs, features = media_inputs(model, images, sounds, of_images, of_sounds)
    states = embedded(model, ids, inputs, features)
    if len(of_sounds) == 1:
        # One sound has no padding, so the class itself gives the same.
        extra = {}
        if features:
            size = records[1][of_sounds[0]]["num_embeds"]
            extra = dict(audio_input_features=features[0], audio_embed_sizes=torch.tensor([size]))
        whole = model(input_ids=ids, use_cache=False, **inputs, **extra).logits[0]
        again = model(inputs_embeds=states, use_cache=False).logits[0]
        assert torch.allclose(whole, again, atol=1e-5)
    greedy, first = [], None
    for _ in range(12):
        row = model(inputs_embeds=states, use_cache=False).logits[0, -1].log_softmax(-1)
        first = row if first is None else first
        best, second = row.topk(2).values.tolist()
        assert best - second > 1e-3, "two tokens are nearly equal"
        greedy.append(int(row.argmax()))
        states = torch.cat([states, model.model.embed_tokens(row.argmax()[None, None])], dim=1)
    return dict(
        token_ids=tokens, images=of_images, sounds=of_sounds, last_log_probs=rounded(first),
        placed_token_ids=placed, greedy_token_ids=greedy,
    )


def counted():
    """Returns the counts of tokens of images with the settings of the class."""
    images = Phi4MultimodalImageProcessor()
    count = lambda height, width: images(
        torch.zeros(3, height, width, dtype=torch.uint8), return_tensors="pt"
    )["num_img_tokens"]
    return [dict(height=it[0], width=it[1], num_embeds=int(count(*it)[0])) for it in COUNTED]


@torch.no_grad()
def build(name, config, fields):
    folder = HERE / "phi4" / name
    model = Phi4MultimodalForCausalLM(config)
    randomize(model, seed=sum(name.encode()))
    generator = torch.Generator().manual_seed(1)
    # The mean and the deviation of spectrograms are no parameters.
    norm = model.model.embed_tokens_extend.audio_embed.encoder.encoder_embedding
    norm.global_mean.normal_(0.0, 2.0, generator=generator)
    norm.global_invstd.uniform_(0.05, 0.2, generator=generator)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    images, sounds = processors(config, fields)
    Phi4MultimodalProcessor(images, sounds, tokenizer()).save_pretrained(folder)
    load = Phi4MultimodalForCausalLM.from_pretrained
    model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    again = model.model.embed_tokens_extend.audio_embed.encoder.encoder_embedding
    assert torch.equal(again.global_mean, norm.global_mean)
    records = (
        [image_record(model, images, size) for size in SIZES],
        [sound_record(model, sounds, *it) for it in SOUNDS],
    )
    # Two pieces of 500 embeddings, of which the second is not full.
    long = wave_record(model, 512 * config.audio_config.time_reduction + 1)
    prompts = [prompt_record(model, images, sounds, records, it) for it in PROMPTS]
    words = tokenizer()
    texts = {
        text: words(text, add_special_tokens=False)["input_ids"]
        for text in (*TAGS.values(), "<|endoftext10|>", "<|endoftext11|>")
    }
    golden = dict(images=records[0], sounds=records[1], wave=long, prompts=prompts, texts=texts)
    golden["pillow"] = [pillow_record(images, record) for record in records[0]]
    if name == "phi4":
        golden["counted"] = counted()
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


# The names of modules and tensors in transformers, and in the authors' code.
OF_AUTHORS = [
    ("up_proj_for_vision_speech", "audio_projection.vision.0"),
    ("down_proj_for_vision_speech", "audio_projection.vision.2"),
    ("up_proj_for_speech", "audio_projection.speech.0"),
    ("down_proj_for_speech", "audio_projection.speech.2"),
    ("img_projection_up", "img_projection.0"), ("img_projection_down", "img_projection.2"),
    ("sub_img_feature_extensor", "sub_GN"), ("global_img_feature_extensor", "glb_GN"),
]
IN_AUDIO = [
    ("gate_up_proj", "net.0.linear"), ("down_proj", "net.2"), ("q_proj", "linear_q"),
    ("k_proj", "linear_k"), ("v_proj", "linear_v"), ("o_proj", "linear_out"),
]
# The fields of the audio encoder, and its names in the authors' code.
AUDIO_FIELDS = [
    ("hidden_size", "attention_dim"), ("num_attention_heads", "attention_heads"),
    ("intermediate_size", "linear_units"),
    ("depthwise_separable_out_channel", "depthwise_seperable_out_channel"),
]
WRAPPED = ("qkv_proj.weight", "o_proj.weight", "gate_up_proj.weight", "down_proj.weight")


def authors_tensors(tensors):
    """Returns the tensors of a model under their names in the authors' code."""
    generator, renamed = torch.Generator().manual_seed(7), {}
    for name, tensor in tensors.items():
        if name.startswith("model.layers") and name.endswith(WRAPPED):
            module = name.removesuffix(".weight")
            for adapter, rank in (("vision", 2), ("speech", 3)):
                for part, shape in (("A", (rank, tensor.shape[1])), ("B", (tensor.shape[0], rank))):
                    matrix = torch.randn(shape, generator=generator).to(tensor.dtype)
                    renamed[f"{module}.lora_{part}.{adapter}.weight"] = matrix
            renamed[f"{module}.base_layer.weight"] = tensor
            continue
        pairs = OF_AUTHORS if "embed_tokens_extend" in name else []
        pairs = pairs + (IN_AUDIO if ".encoders." in name else [])
        pair = next((pair for pair in pairs if pair[0] in name), ("", ""))
        renamed[name.replace(*pair) if pair[0] else name] = tensor
    return renamed


def authors_config(config):
    """Returns the fields of `config.json` in the authors' code."""
    audio, names = dict(config.pop("audio_config")), dict(AUDIO_FIELDS)
    convs = dict(conv_channels=audio.pop("nemo_conv_channels"))
    biases = dict(
        type="t5", t5_bias_max_distance=audio.pop("bias_max_distance"),
        t5_bias_symmetric=audio.pop("bias_symmetric"),
    )
    kept = {names.get(field, field): value for field, value in audio.items()}
    kept |= dict(
        input_layer="nemo_conv", causal=True, bias_in_glu=True, cnn_layer_norm=True,
        batch_norm=False, ext_pw_kernel_size=1, nemo_conv_settings=convs,
        relative_attention_bias_args=biases,
    )
    rope = dict(config.pop("rope_parameters"))
    fields = dict(
        rope_theta=rope.pop("rope_theta"),
        partial_rotary_factor=rope.pop("partial_rotary_factor"),
    )
    if rope.pop("rope_type") == "longrope":
        fields["rope_scaling"] = dict(rope, type="longrope")
        fields["rope_scaling"].pop("original_max_position_embeddings", None)
    return config | fields | dict(
        architectures=["Phi4MMForCausalLM"], model_type="phi4mm",
        auto_map=dict(AutoModelForCausalLM="modeling_phi4mm.Phi4MMForCausalLM"),
        audio_processor=dict(name="cascades", config=kept), img_processor=None,
        embd_layer=dict(
            audio_embd_layer=dict(
                compression_rate=8, downsample_rate=1, embedding_cls="audio", projection_cls="mlp",
                use_conv_downsample=False, use_qformer=False,
            ),
            embedding_cls="image_audio",
            image_embd_layer=dict(
                crop_size=448, embedding_cls="tune_image", hd_transform_order="sub_glb",
                image_token_compression_cls="avg_pool_2d", projection_cls="mlp",
                use_hd_transform=True, with_learnable_separator=True,
            ),
        ),
        vision_lora=dict(dp=0.0, layer="layers.*", lora_alpha=4, r=2),
        speech_lora=dict(dp=0.0, layer="layers.*", lora_alpha=6, r=3),
    )


def build_of_authors(name):
    """Writes the model `name` once more, in the form of its authors' code."""
    known = HERE / "phi4" / name
    folder = HERE / "phi4" / name.replace("phi4", "phi4mm")
    folder.mkdir(exist_ok=True)
    tensors = authors_tensors(load_file(known / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    write = lambda file, fields: (folder / file).write_text(
        json.dumps(fields, indent=2, sort_keys=True) + "\n"
    )
    write("config.json", authors_config(json.loads((known / "config.json").read_text())))
    whole = json.loads((known / "processor_config.json").read_text())
    # One file has the fields of images and of sounds.
    write("preprocessor_config.json", whole["audio_processor"] | whole["image_processor"] | dict(
        image_processor_type="Phi4MMImageProcessor",
        feature_extractor_type="Phi4MMAudioFeatureExtractor",
    ))
    tokenizer().save_pretrained(folder)


def main():
    torch.set_num_threads(1)
    known = models()
    for name in sys.argv[1:] or list(known):
        build(name, *known[name]())
        build_of_authors(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
