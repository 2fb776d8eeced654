"""Renders the cases of cases.json with transformers and writes what came out to goldens.json.

    python make_goldens.py        (needs transformers and jinja2; no model, no network)

A case has a template (a file here), messages and the other arguments of `apply_chat_template`. Where transformers does
not convert what a client may send (lists of text parts, tool-call arguments as JSON strings), `hf_messages` gives it
the messages converted by hand. The outcome is {"text": ...}, or {"error": ...} with the message that the template
raised, or {"refused": true} where transformers itself refused.
"""
import json, os

import jinja2
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def render(tokenizer, case):
    kwargs = dict(case.get("chat_template_kwargs", {}))
    documents = kwargs.pop("documents", case.get("documents"))
    try:
        return {"text": tokenizer.apply_chat_template(
            case.get("hf_messages", case["messages"]),
            tools=case.get("tools"),
            documents=documents,
            chat_template=load(case["template"] + ".jinja"),
            add_generation_prompt=case.get("add_generation_prompt", False),
            continue_final_message=case.get("continue_final_message", False),
            tokenize=False,
            **kwargs,
        )}
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error)}
    except ValueError:
        return {"refused": True}


def main():
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")),
        bos_token="<s>", eos_token="</s>",
    )
    goldens = {case["name"]: render(tokenizer, case) for case in json.loads(load("cases.json"))}
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="utf-8") as file:
        json.dump(goldens, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(goldens)} goldens by transformers {transformers.__version__}, jinja2 {jinja2.__version__}")


main()
