"""The conditions that a request must meet for a rule to match it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from vllm_harness._files.strict import Pattern, StrictModel

Api = Literal["responses", "chat", "completions", "messages"]
Format = Literal["text", "json_object", "json_schema", "structural_tag"]
Role = Literal["system", "developer", "user", "assistant", "tool"]


def _one_or_list(item: Any) -> BeforeValidator:
    """Accepts a single item instead of a list."""
    return BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value,
        json_schema_input_type=item | tuple[item, ...],
    )


class MessageCondition(StrictModel):
    """A message anywhere in the conversation.

    Attributes:
        role: the role of the message's author; by default any. A tool result has the role `tool`.
        text: a pattern for the text of the message.
    """

    role: Role | None = None
    text: Pattern = ""


class ToolResultCondition(StrictModel):
    """A tool result anywhere in the conversation; the same result must meet all conditions.

    Attributes:
        name: the name of the function.
        arguments: a pattern for the arguments of the call, as JSON.
        output: a pattern for the result.
    """

    name: str | None = None
    arguments: Pattern = ""
    output: Pattern = ""


class When(StrictModel):
    """The conditions of a rule, all of which a request must meet.

    A pattern is a regular expression of Python's `re` that may match anywhere in the text.

    Attributes:
        user: a pattern for the last user message.
        system: a pattern for the system prompt: the instructions, and all system and developer messages.
        message: conditions for one message, anywhere in the conversation.
        tool_output: a pattern for the tool outputs after the model's last turn, joined by newlines.
        tool_result: conditions for one tool result, anywhere in the conversation.
        turn: the number of assistant turns before this request, including those from `previous_response_id`.
        tools: the names of tools that the request must offer.
        tool_choice: `auto`, `none` or `required`, or the name of the only tool allowed.
        parallel_tool_calls: whether several calls in a turn are allowed, as they are by default.
        stream: whether the answer is streamed.
        format: the answer's format (`text.format`, `response_format`, `output_config`), or a list of formats.
        model: a pattern for the model's name.
        api: the API of the request, or a list of APIs.
        header: patterns for the values of headers, by header name.
        all: further sets of conditions, all of which must hold.
        any: sets of conditions of which at least one must hold; groups come from the first that holds.
        not_: written `not`: a set of conditions that must not all hold.
    """

    model_config = ConfigDict(populate_by_name=True)

    user: Pattern | None = None
    system: Pattern | None = None
    message: MessageCondition | None = None
    tool_output: Pattern | None = None
    tool_result: ToolResultCondition | None = None
    turn: StrictInt | None = Field(None, ge=0)
    tools: tuple[str, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: StrictBool | None = None
    stream: StrictBool | None = None
    format: Annotated[tuple[Format, ...], _one_or_list(Format)] = ()
    model: Pattern | None = None
    api: Annotated[tuple[Api, ...], _one_or_list(Api)] = ()
    header: dict[str, Pattern] = Field(default_factory=dict)
    all: tuple[When, ...] = ()
    any: tuple[When, ...] = ()
    not_: When | None = Field(None, alias="not")

    def as_json(self) -> dict[str, Any]:
        """The conditions that are set, in the form that the server expects."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @property
    def groups(self) -> frozenset[str]:
        """The named groups in the patterns, which a rule's answer can quote."""
        own = [self.user, self.system, self.tool_output, self.model, *self.header.values()]
        if self.message:
            own.append(self.message.text)
        if self.tool_result:
            own += [self.tool_result.arguments, self.tool_result.output]
        names = {name for pattern in own if pattern for name in re.compile(pattern).groupindex}
        return frozenset(names.union(*(when.groups for when in (*self.all, *self.any))))
