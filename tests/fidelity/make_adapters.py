"""Makes adapters for models of `models/` with PEFT, and records the answers of transformers with them.

    python3 make_adapters.py            all models
    python3 make_adapters.py NAME ...   some of them
    python3 make_adapters.py NAME/f     one adapter more of a model that has some

With transformers 4, it adds the adapters alone that only this version has.

Each model gets two adapters in `adapters/NAME/{a,b}`, and `adapters/NAME/answers.json` has greedy
continuations and their log-probabilities in float32: of the base model, and with each adapter.
Models of experts get a third one, `c`, with matrices for each expert, in the names that experts had
in transformers 4. PEFT itself turns them into those of transformers 5. A fourth one, `d`, has those
of transformers 5, where all experts are one parameter. Models whose files have such parameters get
this one, too. Where transformers 4 had a module of all experts for each of their products, it makes
`c` with the parameters of these. Models of experts that PEFT cannot compute beside their adapter
have the answers of both merged. Some models get a fifth one, `e`, with matrices of the embedding,
and of the output layer. Others get a sixth one, `f`, with matrices of the router's weight, as PEFT
makes them of `gate` and of `all-linear` with transformers 5. The adapter `g` has the matrices of
the embedding in the output layer, too (`ensure_weight_tying`). The adapter `h` has patterns with
look-arounds and whole names, and changes some layers alone.
Needs torch, transformers and peft.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

HERE = pathlib.Path(__file__).parent
TOKENS = 12
# Models of experts: the names of an expert's modules in transformers 4, that of the output last.
EXPERTS = {
    "mixtral": ["w1", "w3", "w2"],
    "qwen3_moe": ["gate_proj", "up_proj", "down_proj"],
}
# Models whose files have all experts in one tensor: the module of the experts.
PARAMETERS = {
    "gpt_oss": "mlp.experts",
    "gpt_oss-mxfp4": "mlp.experts",
    "llama4": "feed_forward.experts",
    "qwen3_5_moe": "mlp.experts",
    "granite_moe": "block_sparse_moe.experts",
    "granite_hybrid": "block_sparse_moe.experts",
    "granite_moe_swa": "block_sparse_moe.experts",
    "cohere2_moe": "mlp.experts",
    "hy_v3": "mlp.experts",
    "longcat_flash": "mlp.experts",
    "nemotron_h-experts": "mixer.experts",
}
# Those of them whose experts have no gates.
UNGATED = ["nemotron_h-experts"]
# Models whose experts were parameters of other modules in transformers 4.
PARAMETERS_4 = {
    "granite_moe": [f"block_sparse_moe.{side}_linear.weight" for side in ("input", "output")],
}
# Models that are merged with their adapter `d`: the parameters of their experts.
MERGED = {"dbrx-plain": ["mlp.w1", "mlp.v1", "mlp.w2"]}
# Models whose adapter `e` has matrices of the embedding: that and some other modules.
EMBEDDINGS = {
    "llama-tied": ["embed_tokens", "lm_head", "v_proj"],
    "qwen3-layer-types": ["embed_tokens", "lm_head", "v_proj"],
    "gemma3": ["embed_tokens", "v_proj"],
    "gpt2": ["wte", "c_fc"],
    # Its output layer has another name in files than in transformers 5.
    "gpt_neox": ["embed_in", "lm_head", "query_key_value"],
    # PEFT saves the bias of its output layer, too.
    "phi": ["embed_tokens", "lm_head", "fc1"],
}
# Models whose adapter `g` has the matrices of the embedding in the output layer, too.
TIED = ["llama-tied"]
# Models whose adapter `h` has patterns.
PATTERNS = ["llama-gqa-f16"]
# Models whose adapter `f` has matrices of the router: its weight in transformers 5.
ROUTERS = {
    "mixtral": "gate.weight",
    "qwen3_moe": "gate.weight",
    "granite_moe": "router.weight",
    "hy_v3": "gate.weight",
}
IS_4 = transformers.__version__.startswith("4.")
# Models, each with the modules that its second adapter replaces as a whole.
MODELS = {
    "llama-tied": ["embed_tokens", "lm_head"],
    "llama-gqa-f16": [],
    "qwen3-biases": [],
    "qwen3-layer-types": ["lm_head"],
    "gemma2": [],
    "gemma3": [],
    "mistral-window": [],
    "mixtral": [],
    "qwen3_moe": [],
    "qwen2_moe": [],
    "phi": [],
    "phi3": [],
    "gpt2": [],
    "gpt_neox": [],
    "falcon-groups": [],
    "cohere": [],
    "deepseek_v3": [],
    "bloom": [],
    "codegen": [],
    "lfm2": [],
    "qwen3_next": [],
    "hy_v3": [],
    "exaone": [],
    "deepseek_v32": [],
    "granite_swa": [],
    "sarvam_mla": [],
    **{name: [] for name in [*PARAMETERS, *MERGED]},
}


def linears(model):
    """Returns the last components of the names of all linear layers, the output layer apart."""
    names = {}
    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and not name.endswith("lm_head"):
            short = name.rsplit(".", 1)[-1]
            if ".shared_experts." in name and model.config.model_type == "hy_v3":
                names[f"shared_experts.{short}"] = name
                continue
            # PEFT reads these names as those of the experts, which are one parameter.
            if ".mlp." in name and hasattr(model.config.get_text_config(), "num_experts_per_tok"):
                continue
            # transformers reads the weights of these layers past the layers, and so past PEFT's.
            parent = type(model.get_submodule(name.rpartition(".")[0])).__name__
            if short in ("out_proj", "dt_proj") and "Mamba" in parent:
                continue
            # It returns two tensors, which PEFT does not expect.
            if type(module).__name__ == "Llama4Router":
                continue
            if not short.isdigit() and short != "embed_out":
                names[short] = name
    return names


def configs(names, saved):
    """Returns the configs of both adapters."""
    some = sorted(names)[::2]
    yield LoraConfig(r=3, lora_alpha=7, target_modules=some, task_type="CAUSAL_LM")
    first = sorted(names)[0]
    yield LoraConfig(
        r=4,
        lora_alpha=6,
        use_rslora=True,
        target_modules=sorted(names),
        rank_pattern={first: 2},
        alpha_pattern={first: 9},
        modules_to_save=saved or None,
        task_type="CAUSAL_LM",
    )


def greedy(model, prompt):
    tokens, logprobs = list(prompt), []
    for _ in range(TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        row = torch.log_softmax(logits.double(), -1)
        best = int(row.argmax())
        tokens.append(best)
        logprobs.append(float(row[best]))
    return {"prompt": list(prompt), "tokens": tokens[len(prompt):], "logprobs": logprobs}


def of_experts(folder, out, inner, generator):
    """Writes an adapter of each expert and of the queries."""
    rank, tensors = 3, {}
    for file in sorted(folder.glob("*.safetensors")):
        for key, weight in load_file(file).items():
            module = key.removesuffix(".weight")
            short = module.rsplit(".", 1)[-1]
            if not (short == "q_proj" or ".experts." in key and short in inner):
                continue
            outputs, inputs = weight.shape
            module = f"base_model.model.{module}"
            noise = lambda *shape: torch.randn(shape, generator=generator)
            tensors[f"{module}.lora_A.weight"] = 0.3 * noise(rank, inputs)
            tensors[f"{module}.lora_B.weight"] = 0.2 * noise(outputs, rank)
    config = LoraConfig(
        r=rank, lora_alpha=7, target_modules=["q_proj", *inner], task_type="CAUSAL_LM",
        inference_mode=True,
    )
    config.save_pretrained(out)
    save_file(tensors, out / "adapter_model.safetensors", metadata=dict(format="pt"))


# With larger numbers in lightning attention, float32 and float64 differ by 5e-4.
FACTORS_OF_B = {"minimax": 0.1}


def random_adapter(model, config, out, generator):
    """Writes an adapter with random matrices."""
    tuned = get_peft_model(model, config)
    for key, parameter in tuned.named_parameters():
        if "lora_" in key:
            noise = torch.randn(parameter.shape, generator=generator)
            # In place, because the output layer may share the matrices of the embedding.
            of_b = FACTORS_OF_B.get(out.parent.name, 0.2)
            parameter.data.copy_(noise * (0.3 if "lora_A" in key else of_b))
        elif "modules_to_save" in key:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = parameter.data + 0.05 * noise
    tuned.save_pretrained(out)


def make(name, saved, only=None):
    folder = HERE / "models" / name
    load = lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    record(name, saved, load, folder, HERE / "adapters" / name, only)


def record(name, saved, load, folder, out, only=None):
    """Writes the adapters of the model that `load` returns, which is in `folder`, or one more."""
    if not IS_4 and not only:
        shutil.rmtree(out, ignore_errors=True)
    model = load()
    generator = torch.Generator().manual_seed(len(name))
    vocab = model.config.get_text_config().vocab_size
    prompts = [
        torch.randint(3, vocab, (length,), generator=generator).tolist() for length in (5, 19)
    ]
    answers = [{"adapter": None, **greedy(model, prompt)} for prompt in prompts]
    adapters = list(zip("ab", configs(linears(model), saved)))
    adapters += [("c", EXPERTS[name])] if name in EXPERTS else []
    adapters += [("d", None)] if name in EXPERTS or name in PARAMETERS else []
    if name in MERGED:
        adapters.append(("d", None))
    if name in EMBEDDINGS:
        modules = EMBEDDINGS[name]
        config = LoraConfig(
            r=5, lora_alpha=3, target_modules=modules, rank_pattern={modules[0]: 2},
            task_type="CAUSAL_LM",
        )
        adapters.append(("e", config))
    if name in ROUTERS:
        adapters.append(("f", of_parameters([ROUTERS[name]], ROUTERS[name])))
    if name in TIED:
        config = LoraConfig(
            r=3, lora_alpha=5, target_modules=["embed_tokens", "v_proj"],
            ensure_weight_tying=True, task_type="CAUSAL_LM",
        )
        adapters.append(("g", config))
    if name in PATTERNS:
        adapters.append(("h", of_patterns()))
    if only:
        adapters = [one for one in adapters if one[0] == only]
        generator = torch.Generator().manual_seed(len(name) + ord(only))
        answers = json.loads((out / "answers.json").read_text())
        answers = [one for one in answers if one["adapter"] != only]
    if IS_4:
        adapters = [("c", of_parameters(PARAMETERS_4[name], "input_linear.weight"))]
        answers = json.loads((out / "answers.json").read_text())
        answers = [one for one in answers if one["adapter"] != "c"]
    for adapter, config in adapters:
        if adapter == "c" and not IS_4:
            of_experts(folder, out / adapter, config, generator)
        elif adapter == "d" and name in MERGED:
            config = of_parameters(MERGED[name], "mlp.v1")
            config.target_modules = {"Wqkv"}
            random_adapter(load(), config, out / adapter, generator)
        elif adapter == "d":
            experts = PARAMETERS.get(name, "mlp.experts")
            inner = "up_proj" if name in UNGATED else "gate_up_proj"
            parameters = [f"{experts}.{inner}", f"{experts}.down_proj"]
            config = of_parameters(parameters, "experts.down_proj")
            random_adapter(load(), config, out / adapter, generator)
        else:
            random_adapter(load(), config, out / adapter, generator)
        (out / adapter / "README.md").unlink(missing_ok=True)
        loaded = PeftModel.from_pretrained(load(), out / adapter).eval()
        if adapter == "d" and name in MERGED:
            loaded = loaded.merge_and_unload()
        answers += [{"adapter": adapter, **greedy(loaded, prompt)} for prompt in prompts]
        config = json.loads((out / adapter / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = name
        config["target_modules"] = sorted(config["target_modules"])
        text = json.dumps(config, indent=1, sort_keys=True)
        (out / adapter / "adapter_config.json").write_text(text + "\n")
    (out / "answers.json").write_text(json.dumps(answers) + "\n")
    print(name, [len(a["tokens"]) for a in answers])


def of_parameters(parameters, narrow):
    """Returns the config of an adapter of parameters and of the keys, `narrow` with rank 2."""
    return LoraConfig(
        r=3, lora_alpha=5, target_modules=["k_proj"], target_parameters=parameters,
        rank_pattern={narrow: 2}, task_type="CAUSAL_LM",
    )


def of_patterns():
    """Returns the config of an adapter of the first layer's modules, but for one.

    PEFT sorts patterns when it writes them, and the first one that fits counts. So one fits each.
    """
    return LoraConfig(
        r=4, lora_alpha=6, target_modules=["q_proj", "k_proj", "o_proj", "gate_proj", "up_proj"],
        exclude_modules=["layers.0.mlp.up_proj"], layers_to_transform=[0], layers_pattern="layers",
        rank_pattern={r"^model\.layers\.0\.self_attn\.q_proj": 2, r"(?:(?![kq]_proj).)*_proj": 3},
        alpha_pattern={"model.layers.0.self_attn.k_proj": 9, r"\w+(?<!gate)(?<!k)_proj": 5},
        task_type="CAUSAL_LM",
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or (PARAMETERS_4 if IS_4 else MODELS):
        name, _, only = wanted.partition("/")
        make(name, MODELS.get(name, []), only)
