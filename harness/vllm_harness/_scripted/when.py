"""The conditions of a rule: what a request must look like."""

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
        role: the role of its author; by default any. The result of a tool has the role tool.
        text: a pattern for its text.
    """

    role: Role | None = None
    text: Pattern = ""


class ToolResultCondition(StrictModel):
    """The result of a call anywhere in the conversation; all conditions are about the same call.

    Attributes:
        name: the name of the function.
        arguments: a pattern for the arguments of the call, as JSON.
        output: a pattern for the result.
    """

    name: str | None = None
    arguments: Pattern = ""
    output: Pattern = ""


class When(StrictModel):
    """What a request must look like: all given conditions must hold.

    A pattern is a regular expression of Python's `re`, searched anywhere in the text.

    Attributes:
        user: a pattern for the last user message.
        system: a pattern for the system prompt: the instructions, and all system and developer messages.
        message: a message anywhere in the conversation.
        tool_output: a pattern for the tool outputs after the model's last turn, joined by newlines.
        tool_result: the result of a call anywhere in the conversation.
        turn: the number of assistant turns before this request, including those of `previous_response_id`.
        tools: names of tools that the request must offer.
        tool_choice: `auto`, `none` or `required`, or the name of the only tool allowed.
        parallel_tool_calls: whether several calls in a turn are allowed, as they are by default.
        stream: whether the answer is streamed.
        format: the format of the answer (`text.format`, `response_format` or `output_config`); one or a list.
        model: a pattern for the model's name.
        api: one API or a list.
        header: a pattern for the value of each named header.
        all: further conditions that must all hold.
        any: conditions of which one must hold; the first that holds gives the groups.
        not_: written `not`: conditions that must not all hold.
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
        """The given conditions, as a server matches them."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @property
    def groups(self) -> frozenset[str]:
        """The named groups of its patterns, which a rule can quote."""
        own = [self.user, self.system, self.tool_output, self.model, *self.header.values()]
        if self.message:
            own.append(self.message.text)
        if self.tool_result:
            own += [self.tool_result.arguments, self.tool_result.output]
        names = {name for pattern in own if pattern for name in re.compile(pattern).groupindex}
        return frozenset(names.union(*(when.groups for when in (*self.all, *self.any))))
