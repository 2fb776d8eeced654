"""Records how vLLM's own parsers read the outputs of `inputs.json`, for the tests of this folder.

    python src/parsers/tests/record.py VLLM

VLLM is a checkout of vLLM 0.33.0, of which only the parsers run. Small stand-ins take the place of
its servers and of packages that are not installed. Needs: transformers, regex, pydantic.

Each output is read whole, by its tool parser or its reasoning parser. `recorded.json` holds the
results in the order of the inputs.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path
from unittest import mock

HERE = Path(__file__).parent
VLLM = Path(sys.argv[1])

REAL = ("vllm.tool_parsers", "vllm.reasoning", "vllm.parser", "vllm.exceptions")
ABSENT = ("ijson", "mistral_common", "openai", "openai_harmony", "partial_json_parser")
ABSENT += ("prometheus_client", "xgrammar")


class Anything(type):
    """The type of a class that has every name."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock()


class Record(metaclass=Anything):
    """An object with the fields it is made of."""

    def __init__(self, *_, **fields):
        self.__dict__.update(dict(id=None, content=None, reasoning=None, tool_calls=[]) | fields)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class StandIn(types.ModuleType):
    """A module whose every name is a class of its own."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "init_logger":
            return lambda _: mock.MagicMock()
        made = type(name, (Record,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        is_real = any(name == real or name.startswith(real + ".") for real in REAL)
        package = name.split(".")[0]
        if name == "vllm" or package == "vllm" and not is_real or package in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        if spec.name == "vllm":
            module = types.ModuleType("vllm")
            module.__path__ = [str(VLLM / "vllm")]
            return module
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, StandIns())


class Words:
    """A tokenizer for which a text is the sequence of its markers and characters."""

    init_kwargs = {}

    def __init__(self, markers):
        self.ids = {marker: index for index, marker in enumerate(markers)}

    def get_vocab(self):
        return dict(self.ids)

    def encode(self, text, **_):
        ids = []
        while text:
            markers = sorted(self.ids, key=len, reverse=True)
            marker = next((m for m in markers if text.startswith(m)), text[0])
            ids.append(self.ids.setdefault(marker, len(self.ids)))
            text = text[len(marker) :]
        return ids

    def decode(self, ids, **_):
        words = {index: word for word, index in self.ids.items()}
        return "".join(words[index] for index in ids)

    def convert_tokens_to_ids(self, token):
        return self.ids.get(token)


def parser_of(package, table, name, tokenizer, *args, **kwargs):
    """Returns vLLM's parser of this name."""
    module = importlib.import_module(f"vllm.{package}")
    file, cls = getattr(module, table)[name]
    made = getattr(importlib.import_module(f"vllm.{package}.{file}"), cls)
    return made(tokenizer, *args, **kwargs)


def tools():
    listed = json.loads((HERE / "tools.json").read_text())
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

    def record(tool):
        function = dict(parameters=None) | tool["function"]
        return ChatCompletionToolsParam(type="function", function=Record(**function))

    return [record(tool) for tool in listed]


def request(tools, **settings):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(
        tools=tools, tool_choice="auto", chat_template_kwargs=settings, include_reasoning=True,
        skip_special_tokens=False,
    )


def read_calls(case):
    tokenizer = Words(case.get("tokens", []))
    if "suffix" in case:
        tokenizer.init_kwargs = {"token_suffix": case["suffix"]}
    parser = parser_of(
        "tool_parsers", "_TOOL_PARSERS_TO_REGISTER", case["parser"], tokenizer, tools()
    )
    settings = {name: case[name] for name in ["tool_call_format"] if name in case}
    found = parser.extract_tool_calls(case["text"], request(tools(), **settings))
    calls = [[call.function.name, json.loads(call.function.arguments)] for call in found.tool_calls]
    return dict(content=found.content or "", calls=calls)


def settings(case):
    """Returns the settings of a template that turn thoughts on or off."""
    if "thinking" not in case:
        return {}
    thinking = case["thinking"]
    effort = "high" if thinking else "none"
    return dict(thinking=thinking, enable_thinking=thinking, reasoning_effort=effort)


def read_thoughts(case):
    tokenizer = Words(case.get("tokens", []))
    if "suffix" in case:
        tokenizer.init_kwargs = {"token_suffix": case["suffix"]}
    parser = parser_of(
        "reasoning", "_REASONING_PARSERS_TO_REGISTER", case["parser"], tokenizer,
        chat_template_kwargs=settings(case),
    )
    reasoning, content = parser.extract_reasoning(case["text"], request(None))
    if case["parser"] == "minicpmv":
        # vLLM does this after both of its parsers.
        from vllm.parser.minicpmv import recover_newlines

        reasoning, content = recover_newlines(reasoning), recover_newlines(content)
    return dict(reasoning=reasoning or "", content=content or "")


def main():
    inputs = json.loads((HERE / "inputs.json").read_text())
    readers = dict(calls=read_calls, thoughts=read_thoughts)
    recorded = {
        kind: [case | readers[kind](case) for case in cases] for kind, cases in inputs.items()
    }
    text = json.dumps(recorded, indent=1, ensure_ascii=False)
    (HERE / "recorded.json").write_text(text + "\n")


main()
