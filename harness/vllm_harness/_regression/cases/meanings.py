"""The canonical meanings in meanings.yaml, and the texts that a family's dialect renders from them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError, model_validator

from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import CaseInput, Topic
from vllm_harness._scripted.dialects import DialectError, find_dialect, render
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

FILE = Path(__file__).with_name("meanings.yaml")
_DEFS = {"point": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}}
_PRIVATE = 0xE000
"""The first of Unicode's private-use characters."""
_ORDER: tuple[Literal["reasoning", "text", "calls"], ...] = ("reasoning", "text", "calls")


class NamedMeaning(StrictModel):
    """A meaning (reasoning, text and calls) with a name.

    Attributes:
        name: unique within its file.
        reasoning, text, calls: the parts; a call maps the function name to the arguments.
        order: the order of the parts.
    """

    name: str
    reasoning: str | None = None
    text: str | None = None
    calls: tuple[dict[str, dict[str, Any]], ...] = ()
    order: tuple[Literal["reasoning", "text", "calls"], ...] = _ORDER

    @property
    def meaning(self) -> Meaning:
        """The meaning, with its parts in order."""
        parts: dict[str, list[Part]] = {
            "reasoning": [] if self.reasoning is None else [Reasoning(self.reasoning)],
            "text": [] if self.text is None else [Text(self.text)],
            "calls": [ToolCall(name, arguments) for call in self.calls for name, arguments in call.items()],
        }
        return Meaning(tuple(part for kind in self.order for part in parts[kind]))


class MeaningCase(NamedMeaning):
    """A meaning as a test case.

    Attributes:
        topic: the subject of the case.
        chunks: whether the case also runs in the group `chunks`.
        tools: names of the tools that the request offers; None for all.
        deliveries: how the text arrives; empty for the group's deliveries.
    """

    topic: Topic
    chunks: bool = False
    tools: tuple[str, ...] | None = None
    deliveries: tuple[DeliveryField, ...] = ()


class Meanings(StrictModel):
    """The content of a meanings file.

    Attributes:
        tools: maps the name of a tool to the `properties` of its parameter schema.
        cases: the test cases, in file order.
    """

    tools: dict[str, dict[str, Any]]
    cases: tuple[MeaningCase, ...]

    @model_validator(mode="after")
    def _names(self) -> Meanings:
        names = [case.name for case in self.cases]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two cases are named {min(repeated)!r}")
        called = {name for case in self.cases for call in case.calls for name in call}
        if unknown := called - self.tools.keys():
            raise ValueError(f"a case calls {min(unknown)!r}, which `tools` does not define")
        return self

    def tools_offered(self, names: Iterable[str] | None = None) -> tuple[dict[str, Any], ...]:
        """Returns the tools with these names (by default all), in Chat Completions format."""
        return tuple(chat_tool(name, self.tools[name]) for name in (self.tools if names is None else names))


def chat_tool(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool in Chat Completions format."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if "$ref" in str(properties):
        schema["$defs"] = _DEFS
    return {"type": "function", "function": {"name": name, "parameters": schema}}


@cache
def load_meanings(path: Path = FILE) -> Meanings:
    """Reads a meanings file. Raises UsageError if the file cannot be read or is malformed."""
    try:
        return Meanings.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise UsageError(
            f"{path} is not a valid file of meanings: {error}", hint=f"see {FILE} for an example"
        ) from error


def renderable(family: Family, meanings: Meanings) -> tuple[list[CaseInput], dict[str, str]]:
    """Returns the rendered cases that a family's format can express, and name -> reason for the others."""
    inputs, left_out = [], {}
    for case in meanings.cases:
        if case.reasoning is not None and family.reasoning_parser is None:
            left_out[case.name] = "the family has no reasoning parser"
        elif case.calls and family.tool_parser is None:
            left_out[case.name] = "the family has no tool parser"
        else:
            try:
                text = render(family.dialect, case.meaning)
            except DialectError as error:
                left_out[case.name] = error.message
            else:
                inputs.append(
                    CaseInput(
                        name=case.name,
                        text=text,
                        tools=meanings.tools_offered(case.tools) if family.tool_parser else (),
                        spelled_spans=marker_spans(family, case.meaning),
                        deliveries=case.deliveries,
                    )
                )
    return inputs, left_out


def markers(family: Family) -> tuple[str, ...]:
    """Returns the markers around a family's calls, whether they are one token or several."""
    if family.form is None or family.tool_parser is None:
        return ()
    return find_dialect(family.dialect).calls


def marker_tokens(family: Family) -> tuple[str, ...]:
    """Returns the markers of a family's calls and reasoning that are special tokens."""
    return find_dialect(family.dialect).tokens if family.form else ()


def marker_spans(family: Family, meaning: Meaning) -> tuple[tuple[int, int], ...]:
    """Returns the (start, end) of each of the family's special tokens within arguments in the rendered text.

    The meaning is rendered with a private-use character in place of each token to locate the tokens.
    """
    tokens = dict.fromkeys(marker_tokens(family))
    letters = {token: chr(_PRIVATE + number) for number, token in enumerate(tokens)}
    token_of = {letter: token for token, letter in letters.items()}
    parts = [
        ToolCall(part.name, _with_letters(part.arguments, letters)) if isinstance(part, ToolCall) else part
        for part in meaning.parts
    ]
    if parts == list(meaning.parts):
        return ()
    spans, position = [], 0
    for letter in render(family.dialect, Meaning(tuple(parts))):
        length = len(token_of.get(letter, letter))
        if letter in token_of:
            spans.append((position, position + length))
        position += length
    return tuple(spans)


def _with_letters(value: Any, letters: dict[str, str]) -> Any:
    """Replaces each token in the strings of a value with its private-use character."""
    match value:
        case str():
            for token in sorted(letters, key=len, reverse=True):
                value = value.replace(token, letters[token])
            return value
        case dict():
            return {key: _with_letters(inner, letters) for key, inner in value.items()}
        case list():
            return [_with_letters(inner, letters) for inner in value]
    return value
