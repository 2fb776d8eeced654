"""Makes adapters for models that pool with PEFT, and records the answers of transformers with them.

    python3 make_pooler_adapters.py            all models
    python3 make_pooler_adapters.py NAME ...   some of them

A model is a folder of `encoders/` or `poolers/`. Each gets adapters in `pooler_adapters/NAME/{a,b}`,
and `pooler_adapters/NAME/answers.json` has the results in float32 for some texts: of the base model,
and with each adapter. A classifier gets a third one, `c`, of PEFT's task SEQ_CLS, which saves the
classifier as a whole. Needs torch, transformers, peft and sentence-transformers.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers as hf
from peft import LoraConfig, PeftModel, get_peft_model
from sentence_transformers import SentenceTransformer

HERE = pathlib.Path(__file__).parent
# Models, each with the class that its adapter `b` is trained on: that of the folder, or one with
# another head, whose names have the prefix of the base model.
MODELS = {
    "encoders/bert-mean": hf.BertForMaskedLM,
    "encoders/bert-splade": None,
    "encoders/bert-score": None,
    "encoders/roberta-class": None,
    "encoders/distilbert-mean": None,
    "encoders/distilbert-splade": None,
    "encoders/modernbert-mean": hf.ModernBertForMaskedLM,
    "encoders/mpnet-mean": None,
    "encoders/t5-mean": None,
    "encoders/gemma3-mean-dense": None,
    # Their files have the names of their authors, and the classes of transformers others.
    "encoders/gte-cls": None,
    "encoders/gte-score": None,
    "encoders/nomic-mean": None,
    "encoders/jina-mean": None,
    "poolers/qwen2-last": hf.Qwen2ForCausalLM,
    "poolers/llama-mean": None,
    "poolers/qwen2-class": None,
    "poolers/gemma-class": None,
    "poolers/qwen3-regression": None,
}
# The layers of classifiers, which take no matrices of low rank here.
HEADS = ("classifier", "score", "lm_head", "head.dense", "decoder")


def linears(model, config):
    """Returns the names of the linear layers that an adapter may change."""
    is_classifier = "ForSequenceClassification" in config["architectures"][0]
    names = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        is_masked = config["architectures"][0].endswith("ForMaskedLM")
        if not is_masked and (name.startswith(HEADS) or name.startswith("cls.")):
            continue
        if is_classifier and "pooler" in name:
            continue
        names.append(name)
    return names


def configs(names):
    """Returns the configs of both adapters: of every second layer, and of all."""
    yield LoraConfig(r=3, lora_alpha=7, target_modules=names[::2])
    first = names[0].rsplit(".", 1)[-1]
    yield LoraConfig(
        r=4, lora_alpha=6, use_rslora=True, target_modules=names, rank_pattern={first: 2},
    )


def randomized(tuned, generator):
    for key, parameter in tuned.named_parameters():
        if "lora_" in key:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = noise * (0.3 if "lora_A" in key else 0.2)
        elif "modules_to_save" in key:
            parameter.data = parameter.data + 0.2 * torch.randn(parameter.shape, generator=generator)
    return tuned


def around(kind, base):
    """Returns a model of another class with the same base model."""
    model = kind(base.config).to(torch.float32).eval()
    inner = model.base_model
    found = inner.load_state_dict(base.state_dict(), strict=False)
    # A class may leave out the pooler.
    assert not found.missing_keys and all("pooler" in key for key in found.unexpected_keys), found
    return model


class Pooled:
    """A folder's model with its pooling, as transformers or sentence-transformers compute it."""

    def __init__(self, folder):
        self.folder = folder
        self.config = json.loads((folder / "config.json").read_text())
        self.kind = self.config["architectures"][0]
        self.is_st = (folder / "modules.json").exists()
        float32 = dict(dtype=torch.float32)
        if self.is_st:
            self.st = SentenceTransformer(str(folder), device="cpu", model_kwargs=float32).float()
            self.model = self.st[0].model
        else:
            self.model = getattr(hf, self.kind).from_pretrained(folder, **float32).eval()
            self.tokenizer = hf.AutoTokenizer.from_pretrained(folder)
            if hasattr(self.model, "score"):
                # The tokenizer of the class has other rules than the file.
                self.tokenizer = hf.PreTrainedTokenizerFast.from_pretrained(folder)
                # A text by itself has no padding, even if it ends with that token.
                self.model.config.pad_token_id = None

    def use(self, model):
        if self.is_st:
            self.st[0].model = model
        self.model = model

    def rows(self, text):
        if self.is_st:
            return self.st.encode([text], normalize_embeddings=False).tolist()
        inputs = self.tokenizer(text, return_tensors="pt")
        if getattr(self.model.config, "type_vocab_size", 0) <= 1:
            inputs.pop("token_type_ids", None)
        with torch.no_grad():
            logits = self.model(**inputs).logits
        if self.kind.endswith("ForMaskedLM"):
            return logits[0].relu().log1p().max(0, keepdim=True).values.tolist()
        if self.config.get("problem_type") == "regression":
            return logits.tolist()
        by_itself = self.config.get("problem_type") == "multi_label_classification"
        by_itself = by_itself or logits.shape[-1] == 1
        return (logits.sigmoid() if by_itself else logits.softmax(-1)).tolist()


def make(name, other):
    folder = HERE / name
    out = HERE / "pooler_adapters" / folder.name
    shutil.rmtree(out, ignore_errors=True)
    golden = json.loads((folder / "golden.json").read_text())
    texts = [one["text"] for one in golden["texts"] if "prompt_name" not in one][:3]
    generator = torch.Generator().manual_seed(len(name))
    answer = lambda pooled, adapter: [
        dict(adapter=adapter, text=text, row=[round(x, 7) for x in pooled.rows(text)[0]])
        for text in texts
    ]
    answers = answer(Pooled(folder), None)
    is_classifier = "ForSequenceClassification" in Pooled(folder).kind
    for adapter in "abc" if is_classifier else "ab":
        base = Pooled(folder)
        wide = other is not None and adapter == "b"
        model = around(other, base.model) if wide else base.model
        names = linears(model, base.config)
        of_class = names[1::2] + [name for name, _ in model.named_modules() if name.endswith("pooler.dense")]
        seq_cls = LoraConfig(r=3, lora_alpha=5, target_modules=of_class, task_type="SEQ_CLS")
        config = dict(zip("abc", [*configs(names), seq_cls]))[adapter]
        tuned = randomized(get_peft_model(model, config), generator)
        tuned.save_pretrained(out / adapter)
        (out / adapter / "README.md").unlink(missing_ok=True)
        if wide:
            # The base model inside has the same changed layers.
            loaded = PeftModel.from_pretrained(around(other, Pooled(folder).model), out / adapter)
            base.use(loaded.base_model.model.base_model.eval())
        else:
            fresh = Pooled(folder)
            base.use(PeftModel.from_pretrained(fresh.model, out / adapter).eval())
        answers += answer(base, adapter)
        path = out / adapter / "adapter_config.json"
        config = json.loads(path.read_text())
        config["base_model_name_or_path"] = folder.name
        config["target_modules"] = sorted(config["target_modules"])
        path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    base = [one["row"] for one in answers[: len(texts)]]
    changed = [one["row"] not in base for one in answers[len(texts) :]]
    assert all(changed), f"{name}: an adapter has no effect"
    (out / "answers.json").write_text(json.dumps(answers) + "\n")
    print(name, len(answers))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS.get(name))
