"""The parts of a format that is data: the frame of its messages, its reasoning, its calls.

Parts that dialects of several files share stand in parts.yaml, by name.
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
        raise ValueError(f"nothing opens a message of the role {missing[0]}")
    return roles


def _template_with(*names: str) -> AfterValidator:
    """Refuses a template with another placeholder than these."""

    def check(text: str) -> str:
        template = Template(text)
        known = ", ".join(f"${name}" for name in names)
        if not template.is_valid():
            raise ValueError(f"a lone $; there are {known}, and $$ for a $")
        if unknown := {*template.get_identifiers()} - {*names}:
            raise ValueError(f"unknown placeholder ${min(unknown)}; there are {known}")
        return text

    return AfterValidator(check)


@dataclass(frozen=True, config=STRICT)
class Frame:
    """How a family frames the messages of a chat.

    Attributes:
        roles: what opens a message of `system`, `user`, `assistant` and `tool`.
        close: what closes a message of each role; under the key "", of all other roles.
        end: what the model generates to end its turn.
        end_after_calls: the same after calls, where that differs.
        tokens: what no message can contain: each is one token, most end or begin a message.
        start: what stands before the first message.
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
                raise ValueError(f"a turn ends with one of the tokens, not with {end!r}")


@dataclass(frozen=True, config=STRICT)
class Thoughts:
    """How a family writes reasoning.

    Attributes:
        close: what the model generates after its thoughts.
        open: what it generates before them.
        tail: what the prompt ends with instead where the chat template opens the thoughts.
        gap: blanks between the thoughts and the rest, which a grammar would forbid.
        always: whether they are written, empty, also where there is no reasoning.
        tokens: markers that are one token each.
        special: whether those are special tokens, which vLLM leaves out of text by default.
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
        call: template of a call, with `$name`, `$name_json`, `$arguments`, `$index` from 0, `$number` from 1.
        arguments: the notation of its arguments, JSON by default.
        open, between, close: what stands before, between and after the calls that follow each other.
        beside: what stands between a text and the calls next to it.
        marker: what begins a call, so that no text may contain it; empty where it is no marker.
        text: whether text stands `before` calls, `around` them, or `alone`.
        most: how many calls a turn can hold; None for any number.
        tokens: markers that are one token each.
        special: whether those are special tokens.
        id: template of the id of a call, where its text has one: with `$name` and `$index`.
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
    """The parts of parts.yaml, by name."""

    frames: dict[str, Frame]
    thoughts: dict[str, Thoughts]


@cache
def load_parts(path: Path = FILE) -> Parts:
    """Reads a file of shared parts.

    Raises:
        UsageError: naming file, line and key.
    """
    return read_yaml(path).validated(Parts)


def _by_name(kind: Literal["frames", "thoughts"]) -> Callable[[Any], Any]:
    def find(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts: dict[str, Any] = getattr(load_parts(), kind)
        if value not in parts:
            raise ValueError(f"no {value!r} among the {kind} of {FILE.name}: {', '.join(parts)}")
        return parts[value]

    return find


SharedFrame = Annotated[Frame, BeforeValidator(_by_name("frames"), json_schema_input_type=Frame | str)]
"""A frame, or the name of a frame in parts.yaml."""
SharedThoughts = Annotated[
    Thoughts, BeforeValidator(_by_name("thoughts"), json_schema_input_type=Thoughts | str)
]
"""Thoughts, or the name of thoughts in parts.yaml."""
