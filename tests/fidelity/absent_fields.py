"""Configs that lack fields: the mode `--absent` of `random_configs.py`.

A config of `make_models.py` has all fields. Here, random ones of them are left out or null, and the
object of rotary parameters is shortened. transformers reads the same `config.json`, so that the
defaults of its classes are compared with those of Playhouse.
"""

import copy
import dataclasses
import json

import torch
import transformers

import make_models

MOST_PARAMETERS = 3_000_000
# Fields that the written config always has: its class, its tokens, and the sizes of any model.
ALWAYS = {
    "architectures", "bos_token_id", "dtype", "eos_token_id", "model_type", "pad_token_id",
    "transformers_version", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "n_embd", "n_layer", "n_head", "d_model", "n_layers", "n_heads",
}


def shorter_rope(rope, rng):
    """Returns rotary parameters with fewer fields, or none, and fields to set beside them."""
    beside = rng.choice([{}, {}, {"rope_theta": 5e5}, {"rope_scaling": None}])
    if "rope_type" not in rope:
        kinds = {kind: dict(rope_type="default") for kind in rope}
        kinds.pop(rng.choice([*kinds, None]), None)
        return rng.choice([None, kinds]), rng.choice([beside, {"rope_local_base_freq": 500.0}])
    if "partial_rotary_factor" in rope and rng.random() < 0.3:
        beside = beside | {"partial_rotary_factor": rope["partial_rotary_factor"]}
    bare = {name: value for name, value in rope.items() if name != "rope_theta"}
    return rng.choice([None, {}, dict(rope_type="default"), bare]), beside


def absences(start, rng):
    """Returns changes of a config: `absent` and `null` names, and the fields in `set`.

    The defaults of many sizes do not fit each other, so the first changes count that transformers
    can run.
    """
    for _ in range(10):
        changes = some_absences(start, rng)
        if runs(start, changes):
            break
    return changes


def some_absences(start, rng):
    written = own_fields(start)
    of_any = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    kept = ALWAYS | of_any | {"rope_parameters"}
    names = [name for name in written if name not in kept]
    absent = [name for name in names if rng.random() < 0.3]
    null = [name for name in names if name not in absent and rng.random() < 0.1]
    changes = dict(absent=absent, null=[name for name in null if takes_null(start, name)], set={})
    rope = written.get("rope_parameters")
    # Without a base there, Playhouse takes that in DBRX's `attn_config`, as its authors do.
    if rope and start.model_type != "dbrx" and rng.random() < 0.6:
        shorter, beside = shorter_rope(rope, rng)
        changes["set"] = dict(rope_parameters=shorter) | beside
        if shorter is None:
            changes["absent"].append("rope_parameters")
            del changes["set"]["rope_parameters"]
    return changes


def own_fields(start):
    """Returns the fields of the class, without others that the config also has."""
    names = {field.name for field in dataclasses.fields(type(start))}
    fields = json.loads(start.to_json_string(use_diff=False))
    return {name: value for name, value in fields.items() if name in names}


def changed(fields, changes):
    """Returns the fields of a config with `changes`."""
    fields = {name: value for name, value in fields.items() if name not in changes["absent"]}
    # Config classes write into the objects that they take.
    return fields | dict.fromkeys(changes["null"]) | copy.deepcopy(changes["set"])


def parsed(start, changes):
    """Returns the config that transformers makes of the fields with `changes`."""
    fields = {name: value for name, value in own_fields(start).items()
              if name not in ("architectures", "dtype", "model_type", "transformers_version")}
    return type(start)(**changed(fields, changes))


def takes_null(start, name):
    try:
        parsed(start, dict(absent=[], null=[name], set={}))
    except Exception:  # Whatever a class raises for a null.
        return False
    return True


def runs(start, changes):
    """Returns whether transformers runs a model of the config, which is not large."""
    try:
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(parsed(start, changes))
        if sum(weight.numel() for weight in model.parameters()) > MOST_PARAMETERS:
            return False
        model = transformers.AutoModelForCausalLM.from_config(parsed(start, changes))
        make_models.log_probs(model.eval(), [1, 2, 3])
    except Exception:  # Whatever a class raises for settings that do not fit.
        return False
    return True


def make(start, changes, tokenizer, folder, rng):
    """Writes a model of the config `start` with `changes` into `folder`."""
    config = parsed(start, changes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    make_models.randomize(model, rng.randrange(1_000))
    make_models.save(model.float(), tokenizer, dict(dtype="float32"), folder)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    base = {name: written[name] for name in ALWAYS if name in written}
    fields = {name: value for name, value in own_fields(start).items() if name not in base}
    path.write_text(json.dumps(changed(fields, changes) | base, indent=2) + "\n")
