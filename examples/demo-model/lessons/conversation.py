"""A conversation, with a check for each of its answers."""

from dataclasses import dataclass, field


@dataclass
class Conversation:
    """Messages as chat templates take them, with a check for each of the assistant's."""

    messages: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    tools: list | None = None
    is_exact: bool = False
    """Whether the last mark of a question is part of what it asks for."""
    is_given_keys: bool = False
    """Whether a schema gives the keys of an answer in JSON, so that they are not learned."""

    def system(self, text):
        self.messages.append({"role": "system", "content": text})
        return self

    def user(self, text):
        self.messages.append({"role": "user", "content": text})
        return self

    def tool(self, result):
        self.messages.append({"role": "tool", "content": result})
        return self

    def answer(self, text, check, thought=None, calls=None):
        message = {"role": "assistant", "content": text}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = [{"type": "function", "function": call} for call in calls]
        self.messages.append(message)
        self.checks.append(check)
        return self

    def turn(self, question, answer, check, thought=None):
        return self.user(question).answer(answer, check, thought)

    def then(self, other):
        """Returns this conversation, continued with `other`."""
        self.messages += other.messages
        self.checks += other.checks
        return self


def one(question, answer, check, thought=None):
    """Returns a conversation of one question and its answer."""
    return Conversation().turn(question, answer, check, thought)
