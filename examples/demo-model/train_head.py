"""Trains an EAGLE head for the demo model, on the text that the model was trained on.

    python examples/demo-model/train_head.py --minutes 8

The head reads the model's hidden states and guesses the model's next tokens but one. Needs what
`train.py` needs, and downloads nothing.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama import modeling_llama as llama

from trainer.batches import document, encode

HERE = Path(__file__).parent
ROWS = 12
WARM_UP = 60
LR = 2e-3
# The fields of `config.json` that describe the head.
FIELDS = """attention_bias head_dim hidden_act hidden_size intermediate_size max_position_embeddings
mlp_bias model_type num_attention_heads num_hidden_layers num_key_value_heads rms_norm_eps
rope_parameters tie_word_embeddings transformers_version vocab_size""".split()
# The share of the loss over states that follow from the head's own states.
SECOND = 0.7


class Eagle(nn.Module):
    """The head: `fc` over token and hidden state, and one layer without its first norm."""

    def __init__(self, config):
        super().__init__()
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([llama.LlamaDecoderLayer(config, 0)])
        self.layers[0].input_layernorm = nn.Identity()
        self.rotary = llama.LlamaRotaryEmbedding(config)

    def forward(self, embedded, hidden):
        x = self.fc(torch.cat([embedded, hidden], dim=-1))
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        rotated = self.rotary(x, positions)
        output = self.layers[0](x, attention_mask=mask, position_embeddings=rotated)
        return output[0] if isinstance(output, tuple) else output


def config_of(teacher):
    of_teacher = teacher.config
    return LlamaConfig(
        vocab_size=of_teacher.vocab_size,
        hidden_size=of_teacher.hidden_size,
        intermediate_size=448,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=of_teacher.max_position_embeddings,
        rms_norm_eps=1e-6,
        rope_theta=10_000.0,
        attn_implementation="sdpa",
    )


def batches(tokenizer, seed):
    """Yields `[rows, length]` token ids of documents of nearly one length, and the learned ones."""
    index = 0
    while True:
        documents = [document(f"head {seed}", index + i) for i in range(ROWS * 16)]
        index += len(documents)
        encoded = sorted(encode(tokenizer, documents), key=lambda pair: len(pair[0]))
        groups = [encoded[i : i + ROWS] for i in range(0, len(encoded), ROWS)]
        for i in torch.randperm(len(groups)).tolist():
            length = min(len(groups[i][0][0]), 320)
            if length >= 8:
                ids = torch.tensor([ids[:length] for ids, _ in groups[i]])
                yield ids, torch.tensor([learned[:length] for _, learned in groups[i]])


def loss_of(head, teacher, ids, learned):
    """Returns the loss, and the shares of first and second guesses that are right."""
    with torch.no_grad():
        hidden = teacher.model(ids).last_hidden_state
        wanted = teacher.lm_head(hidden).log_softmax(-1)
        embedded = teacher.model.embed_tokens(ids)
    # Row p has hidden state p and token p + 1. Its state stands for hidden state p + 1.
    first = head(embedded[:, 1:], hidden[:, :-1])
    parts, right = [], []
    second = head(embedded[:, 2:], first[:, :-1])
    for states, offset, weight in [(first, 1, 1.0), (second, 2, SECOND)]:
        of_model = wanted[:, offset:]
        mask = learned[:, offset:].float()
        logits = teacher.lm_head(states).log_softmax(-1)
        entropy = -(of_model.exp() * logits).sum(-1)
        distance = F.smooth_l1_loss(states, hidden[:, offset:], reduction="none").mean(-1)
        parts.append(weight * ((entropy + distance) * mask).sum() / mask.sum().clamp(min=1))
        equal = (logits.argmax(-1) == of_model.argmax(-1)).float()
        right.append(((equal * mask).sum() / mask.sum().clamp(min=1)).item())
    return sum(parts), right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "eagle")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    teacher = AutoModelForCausalLM.from_pretrained(HERE, dtype=torch.float32).eval()
    teacher.requires_grad_(False)
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    config = config_of(teacher)
    head = Eagle(config)
    optimizer = torch.optim.AdamW(head.parameters(), lr=LR, weight_decay=0.01, betas=(0.9, 0.95))
    begun, step = time.monotonic(), 0
    shown = [0.0, 0.0]
    for ids, learned in batches(tokenizer, args.seed):
        done = (time.monotonic() - begun) / (60 * args.minutes)
        if done >= 1:
            break
        rate = LR * min(1.0, (step + 1) / WARM_UP, (1 - done) / 0.4)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, right = loss_of(head, teacher, ids, learned)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        shown = [0.95 * old + 0.05 * new for old, new in zip(shown, right)]
        step += 1
        if step % 50 == 0:
            scale = 1 - 0.95**step
            first, second = (value / scale for value in shown)
            print(f"step {step} loss {loss.item():.3f} right {first:.3f} {second:.3f}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in head.state_dict().items()
        if not name.startswith("rotary")
    }
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads(config.to_json_string(use_diff=False))
    fields = {name: fields[name] for name in FIELDS}
    fields |= {"architectures": ["LlamaForCausalLMEagle"], "dtype": "bfloat16"}
    (args.out / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


if __name__ == "__main__":
    main()
