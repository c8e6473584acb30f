"""A script book as a YAML file: rules in order, for `vllm-harness serve --book`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from vllm_harness.errors import UsageError
from vllm_harness.files.located_yaml import read_yaml
from vllm_harness.files.strict import StrictModel
from vllm_harness.scripted.book import BookRule, Raw, Say, When
from vllm_harness.scripted.meaning import Meaning, ToolCall


class BookFileError(UsageError):
    """The file is no script book; the message names file, line and key."""


class CallSpec(StrictModel):
    """A function call: `{name: get_weather, arguments: {city: Paris}}`."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)


class SaySpec(StrictModel):
    """What the model generates: a meaning (reasoning, text, calls), or `raw` text, or token `ids`.

    `repeat` is how often the text is said, for answers that take long.
    """

    reasoning: str | None = None
    text: str | None = None
    calls: tuple[CallSpec, ...] = ()
    raw: str | None = None
    ids: tuple[int, ...] | None = None
    repeat: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _one_kind(self) -> SaySpec:
        meant = self.reasoning is not None or self.text is not None or bool(self.calls)
        kinds = [meant, self.raw is not None, self.ids is not None]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of: reasoning, text and calls; raw; ids")
        return self

    def as_say(self) -> Say:
        """The same for `ScriptBook.script`."""
        if self.raw is not None:
            return Raw(self.raw)
        if self.ids is not None:
            return self.ids
        calls = tuple(ToolCall(call.name, call.arguments) for call in self.calls)
        text = self.text and self.text * self.repeat
        return Meaning.of(text, reasoning=self.reasoning, calls=calls)


class WhenSpec(StrictModel):
    """What a request must look like; see `vllm_harness.scripted.book.When`."""

    user: str | None = None
    tool_output: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    turn: int | None = Field(None, ge=0)


class RuleSpec(StrictModel):
    """A rule: `say`, a plain text or a mapping; or several of them.

    `turns` are for several generations in one request, `choices` for n greater than 1.
    """

    name: str | None = None
    when: WhenSpec = WhenSpec()
    say: str | SaySpec | None = None
    turns: tuple[str | SaySpec, ...] = ()
    choices: tuple[str | SaySpec, ...] = ()
    times: int | None = Field(None, ge=1)
    constrained: bool = False

    @model_validator(mode="after")
    def _has_one_answer(self) -> RuleSpec:
        if [self.say is not None, bool(self.turns), bool(self.choices)].count(True) != 1:
            raise ValueError("a rule has either 'say' or 'turns' or 'choices'")
        return self


class BookFile(StrictModel):
    """The whole file."""

    rules: tuple[RuleSpec, ...] = Field(min_length=1)


def take_of(spec: str | dict[str, Any]) -> Say:
    """What a rule's `say` means: a text, or a mapping. Raises pydantic's ValidationError."""
    return spec if isinstance(spec, str) else SaySpec.model_validate(spec).as_say()


def load_book(path: Path) -> list[BookRule]:
    """The rules of a book file.

    Raises:
        UsageError: naming file, line and key.
    """
    document = read_yaml(path)
    try:
        spec = BookFile.model_validate(document.data)
    except ValidationError as error:
        raise BookFileError(document.problems(error, lambda location: ())) from error
    return [rule_of(rule, number) for number, rule in enumerate(spec.rules, start=1)]


def rule_of(spec: RuleSpec, number: int) -> BookRule:
    """The rule that a file's rule means; `number` names it where it has no name."""
    when = When(**spec.when.model_dump())
    given = spec.turns or spec.choices or (spec.say,)
    takes = tuple(take.as_say() if isinstance(take, SaySpec) else str(take) for take in given)
    return BookRule(
        spec.name or f"rule {number}",
        takes,
        when=when,
        times=spec.times,
        by_choice=not spec.turns,
        constrained=spec.constrained,
    )
