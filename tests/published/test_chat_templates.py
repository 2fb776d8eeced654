"""Chat templates of real models, rendered as transformers renders them."""

import copy
import json
import unittest

from packages import ROOT, llama_cpp, served
from transformers import AutoTokenizer

CALL_ID = "call12345"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city"},
                    "days": {"type": "integer"},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}
TURNS = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi, how are you?"},
    {"role": "user", "content": "Fine. And über you?"},
]
CALLS = [
    {"role": "user", "content": "The weather in Zürich?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": CALL_ID, "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": CALL_ID, "content": '{"degrees": 20}'},
]
THANKS = [{"role": "assistant", "content": "20 degrees."}, {"role": "user", "content": "Thanks"}]
THOUGHT = [
    {"role": "user", "content": "First"},
    {"role": "assistant", "content": "One", "reasoning_content": "I think", "reasoning": "I think"},
    {"role": "user", "content": "Second"},
]
# Messages, tools, and the template's own variables.
CASES = {
    "turns": (TURNS, None, {}),
    "system": ([{"role": "system", "content": "Be short."}, *TURNS], None, {}),
    "tools": (TURNS[:1], TOOLS, {}),
    "calls": (CALLS, TOOLS, {}),
    "calls and an answer": (CALLS + THANKS, TOOLS, {}),
    "thoughts": (THOUGHT, None, {}),
    "without thoughts": (TURNS, None, {"enable_thinking": False}),
    "with thoughts": (TURNS, None, {"enable_thinking": True}),
}


class ChatTemplates(unittest.TestCase):
    def test_prompts_are_those_of_transformers(self):
        templates = sorted(llama_cpp().glob("templates/*.jinja"))
        self.assertGreaterEqual(len(templates), 70)
        tokenizer = AutoTokenizer.from_pretrained(ROOT / "examples/demo-model")
        compared = 0
        for template in templates:
            with self.subTest(template.name), served("--chat-template", str(template)) as server:
                for name, case in CASES.items():
                    compared += self.compare(tokenizer, server, template, name, case)
        # Some templates refuse some cases.
        self.assertGreaterEqual(compared, 500)

    def compare(self, tokenizer, server, template, name, case):
        """Returns whether transformers makes a prompt of the case."""
        messages, tools, variables = case
        try:
            expected = tokenizer.apply_chat_template(
                messages,
                tools=tools,
                chat_template=template.read_text(),
                tokenize=False,
                add_generation_prompt=True,
                **variables,
            )
        # A template may fail in any way.
        except Exception:
            return False
        body = {"messages": as_sent(messages), "chat_template_kwargs": variables}
        answer = server.post("/tokenize", body | ({"tools": tools} if tools else {}))
        self.assertIsInstance(answer, dict, f"{name}: {answer}")
        text = server.post("/detokenize", {"tokens": answer["tokens"]})["prompt"]
        self.assertEqual(text, expected, name)
        return True


def as_sent(messages):
    """Returns the messages as a client sends them: the arguments of calls are text."""
    messages = copy.deepcopy(messages)
    for call in (call for message in messages for call in message.get("tool_calls", ())):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return messages


if __name__ == "__main__":
    unittest.main()
