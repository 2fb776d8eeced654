"""A model that sees (HF `LlavaForConditionalGeneration`): a SigLIP tower, a projector, and Qwen3.

While it learns, a layer above the tower tells which thing has its middle in which patch, and its
colour. That teaches the tower where things are. The layer is no part of the model.
"""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from transformers import (
    GenerationConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen3Config,
    SiglipImageProcessor,
    SiglipVisionConfig,
)

from pictures.batches import EMBEDS, IMAGE, KINDS, PATCH, SIDE
from pictures.drawing import COLOURS

from .tokenizer import END_OF_TEXT, END_OF_TURN, SPECIAL

CONTEXT = 2_048
NOTHING_WEIGHT = 0.2
"""The weight of patches without a middle: there are many more of them."""


def config(vocab_size, image_token):
    """Returns the shape of the model."""
    text = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=END_OF_TURN,
        pad_token_id=END_OF_TEXT,
        bos_token_id=None,
    )
    vision = SiglipVisionConfig(
        hidden_size=160,
        intermediate_size=480,
        num_hidden_layers=5,
        num_attention_heads=5,
        image_size=SIDE,
        patch_size=PATCH,
        vision_use_head=False,
    )
    return LlavaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=image_token,
        image_seq_length=EMBEDS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=True,
    )


class Sight(nn.Module):
    """The model and the layer that finds things."""

    def __init__(self, config):
        super().__init__()
        self.model = LlavaForConditionalGeneration(config)
        self.finder = nn.Linear(config.vision_config.hidden_size, len(KINDS) + len(COLOURS))
        self.image_token = config.image_token_index

    def losses(self, batch):
        """Returns the mean loss of the learned tokens, and that of the finder."""
        hidden, seen = self._hidden(batch)
        wanted = batch.learned[:, 1:]
        logits = self.model.lm_head(hidden[wanted]).float()
        answer = F.cross_entropy(logits, batch.tokens[:, 1:][wanted])
        return answer, self._finder_loss(seen, batch.kinds, batch.colours)

    def see(self, pixels):
        """Returns the tower's states, [pictures, EMBEDS, width]."""
        tower = self.model.model.vision_tower
        return tower(pixels, output_hidden_states=True).hidden_states[-1]

    def finder_loss(self, pixels, kinds, colours):
        """Returns the loss of the finder alone."""
        return self._finder_loss(self.see(pixels), kinds, colours)

    def found(self, pixels):
        """Returns the likeliest kind and colour of each patch."""
        kinds, colours = self.finder(self.see(pixels)).split([len(KINDS), len(COLOURS)], -1)
        return kinds.argmax(-1), colours.argmax(-1)

    def logits(self, batch):
        """Returns the logits of each token but the first, [rows, tokens - 1, vocabulary]."""
        return self.model.lm_head(self._hidden(batch)[0])

    def _hidden(self, batch):
        """Returns the decoder's last states but the last token's, and the tower's states."""
        inner = self.model.model
        seen = self.see(batch.pixels)
        embeds = inner.language_model.embed_tokens(batch.tokens)
        images = inner.multi_modal_projector(seen).to(embeds.dtype)
        is_image = (batch.tokens == self.image_token)[:, :, None]
        embeds = embeds.masked_scatter(is_image, images)
        hidden = inner.language_model(
            inputs_embeds=embeds, attention_mask=batch.mask(), position_ids=batch.positions
        ).last_hidden_state
        return hidden[:, :-1], seen

    def _finder_loss(self, seen, kinds, colours):
        found = self.finder(seen).float().split([len(KINDS), len(COLOURS)], -1)
        weight = torch.ones(len(KINDS))
        weight[0] = NOTHING_WEIGHT
        kind = F.cross_entropy(found[0].flatten(0, 1), kinds.flatten(), weight)
        is_thing = colours >= 0
        return kind + F.cross_entropy(found[1][is_thing], colours[is_thing])


def save(model, tokenizer, folder):
    """Writes config, weights in bfloat16, tokenizer, chat template and image processor."""
    folder.mkdir(parents=True, exist_ok=True)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[END_OF_TURN],
        pad_token=SPECIAL[END_OF_TEXT],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        extra_special_tokens={"image_token": IMAGE},
    )
    template = (Path(__file__).parent / "vision_template.jinja").read_text()
    images = SiglipImageProcessor(
        size={"height": SIDE, "width": SIDE}, resample=Image.Resampling.BILINEAR
    )
    LlavaProcessor(
        images,
        fast,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        chat_template=template,
        image_token=IMAGE,
    ).save_pretrained(folder)
    theirs = copy.deepcopy(model.model).to(torch.bfloat16)
    theirs.generation_config = GenerationConfig(
        eos_token_id=[END_OF_TURN, END_OF_TEXT], pad_token_id=END_OF_TEXT
    )
    theirs.save_pretrained(folder)
