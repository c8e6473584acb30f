"""The parts of a format that is defined by data: the frame of its messages, its reasoning, its calls.

parts.yaml defines the named parts that dialects in several files share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._scripted.dialects.values import Arguments, Json

FILE = Path(__file__).with_name("parts.yaml")
STRICT = ConfigDict(extra="forbid")

Role = Literal["system", "user", "assistant", "tool"]


def _every_role(roles: dict[Role, str]) -> dict[Role, str]:
    if missing := [role for role in get_args(Role) if role not in roles]:
        raise ValueError(f"the role {missing[0]} is missing")
    return roles


def _template_with(*names: str) -> AfterValidator:
    """Refuses templates with placeholders other than these."""

    def check(text: str) -> str:
        template = Template(text)
        known = ", ".join(f"${name}" for name in names)
        if not template.is_valid():
            raise ValueError(f"a lone $; write {known}, or $$ for a $")
        if unknown := {*template.get_identifiers()} - {*names}:
            raise ValueError(f"unknown placeholder ${min(unknown)}; the known ones are {known}")
        return text

    return AfterValidator(check)


@dataclass(frozen=True, config=STRICT)
class Frame:
    """How a family frames the messages of a chat.

    Attributes:
        roles: the string that opens a message of each role (`system`, `user`, `assistant` and `tool`).
        close: the string that closes a message of each role; the key "" stands for all other roles.
        end: what the model generates to end its turn.
        end_after_calls: what the model generates to end its turn after calls; None if it is `end`.
        tokens: single tokens that no message may contain; most of them begin or end a message.
        start: the string before the first message.
    """

    roles: Annotated[dict[Role, str], AfterValidator(_every_role)]
    close: dict[Role | Literal[""], str]
    end: str
    end_after_calls: str | None = None
    tokens: tuple[str, ...] = ()
    start: str = ""

    def __post_init__(self) -> None:
        for end in filter(None, (self.end, self.end_after_calls)):
            if not end.endswith(self.tokens):
                raise ValueError(f"a turn must end with one of the tokens, not with {end!r}")


@dataclass(frozen=True, config=STRICT)
class ReasoningFormat:
    """How a family writes reasoning.

    Attributes:
        close: what the model generates after its reasoning.
        open: what the model generates before its reasoning.
        tail: the end of the prompt if the chat template, not the model, opens the reasoning.
        gap: whitespace between the reasoning and the rest, which a grammar would forbid.
        always: whether the model writes an empty reasoning block if it does not reason.
        tokens: the reasoning markers that are single tokens.
        special: whether `tokens` are special tokens, which vLLM omits from text by default.
    """

    close: str
    open: str = ""
    tail: str = ""
    gap: str = ""
    always: bool = False
    tokens: tuple[str, ...] = ()
    special: bool = False


@dataclass(frozen=True, config=STRICT)
class Calls:
    """How a family writes calls.

    Attributes:
        call: the template of a call, with `$name`, `$name_json`, `$arguments`, `$index` (from 0) and
            `$number` (from 1).
        arguments: the notation of a call's arguments, by default JSON.
        open, between, close: the strings before, between and after adjacent calls.
        beside: the string between text for the user and the calls next to it.
        marker: the start of a call, which no text may contain; empty if text may contain it.
        text: where text may be: only `before` calls, anywhere `around` them, or in turns without calls
            (`alone`).
        most: the largest number of calls in a turn; None for any number.
        tokens: the call markers that are single tokens.
        special: whether `tokens` are special tokens, which vLLM omits from text by default.
        id: the template of a call's id, with `$name` and `$index`; empty if the format writes no ids.
    """

    call: Annotated[str, _template_with("name", "name_json", "arguments", "index", "number")]
    arguments: Arguments = Json()
    open: str = ""
    between: str = ""
    close: str = ""
    beside: str = ""
    marker: str = ""
    text: Literal["before", "around", "alone"] = "before"
    most: int | None = None
    tokens: tuple[str, ...] = ()
    special: bool = False
    id: Annotated[str, _template_with("name", "index")] = ""


@dataclass(frozen=True, config=STRICT)
class Parts:
    """The parts that parts.yaml defines, by name."""

    frames: dict[str, Frame]
    reasoning: dict[str, ReasoningFormat]


@cache
def load_parts(path: Path = FILE) -> Parts:
    """Reads a file of shared parts.

    Raises:
        UsageError: the file is not valid; the message names the file, line and key.
    """
    return read_yaml(path).validated(Parts)


def _by_name(kind: Literal["frames", "reasoning"]) -> Callable[[Any], Any]:
    def find(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts: dict[str, Any] = getattr(load_parts(), kind)
        if value not in parts:
            raise ValueError(f"{value!r} is not in the {kind} of {FILE.name}: {', '.join(parts)}")
        return parts[value]

    return find


SharedFrame = Annotated[Frame, BeforeValidator(_by_name("frames"), json_schema_input_type=Frame | str)]
"""A frame, or the name of a frame in parts.yaml."""
SharedReasoning = Annotated[
    ReasoningFormat, BeforeValidator(_by_name("reasoning"), json_schema_input_type=ReasoningFormat | str)
]
"""A reasoning format, or the name of a reasoning format in parts.yaml."""
