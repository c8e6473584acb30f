"""A script book as a YAML file: rules in order, for `vllm-harness serve --book`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    model_validator,
)

from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.located_yaml import Document, Location
from vllm_harness._files.strict import StrictModel, keys_of
from vllm_harness._scripted.book import BookRule, Content, Plain, Raw
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._scripted.quoting import Quoting, groups_in, unquoted
from vllm_harness._scripted.when import When


class BookFileError(UsageError):
    """The file is not a valid script book; the message names the file, line and key."""


class CallSpec(StrictModel):
    """A function call.

    Attributes:
        name: the name of the function.
        arguments: a mapping of argument names to values, or a string, which is written unchanged.
    """

    name: str
    arguments: Annotated[
        Annotated[dict[str, Any], Tag("mapping")] | Annotated[str, Tag("text")],
        Discriminator(lambda value: "text" if isinstance(value, str) else "mapping"),
    ] = Field(default_factory=dict)


class SaySpec(StrictModel):
    """What the model generates: a meaning (`reasoning`, `text`, `calls`), `raw`, `ids`, or a `case`.

    A plain string instead of a mapping stands for its `text`. In any string, `${city}` quotes what the group
    `(?P<city>...)` of a pattern in `when` matched; `$${city}` stands for the literal string `${city}`.

    Attributes:
        reasoning: the reasoning before the answer.
        text: text for the user.
        calls: function calls.
        raw: the family's native text, special tokens included, exactly as the model generates it.
        ids: the token ids that the model generates.
        case: a named group of a pattern in `when`, whose text selects the answer.
        of: with `case`, a mapping of the group's text to the answer.
        else_: written `else`: with `case`, the answer for any other text. Without `else`, the rule answers
            only requests whose text is in `of`.
        repeat: the number of times that `text` is repeated, for long answers.
    """

    model_config = ConfigDict(populate_by_name=True)

    reasoning: str | None = None
    text: str | None = None
    calls: tuple[CallSpec, ...] = ()
    raw: str | None = None
    ids: tuple[StrictInt, ...] | None = Field(None, min_length=1)
    case: str | None = None
    of: dict[str, Answer] = Field(default_factory=dict)
    else_: Answer | None = Field(None, alias="else")
    repeat: StrictInt = Field(1, ge=1)

    @model_validator(mode="after")
    def _one_kind(self) -> SaySpec:
        meant = self.reasoning is not None or self.text is not None or bool(self.calls)
        kinds = [meant, self.raw is not None, self.ids is not None, self.case is not None]
        if sum(kinds) != 1:
            raise ValueError("give exactly one of: reasoning, text and calls; raw; ids; case")
        if bool(self.case) != bool(self.of) or (self.else_ and not self.case):
            raise ValueError(
                "case, of and else belong together: case: GROUP, of: {TEXT: ANSWER}, else: ANSWER"
            )
        if any(answer.case for answer in (*self.of.values(), *([self.else_] if self.else_ else []))):
            raise ValueError("an answer in `of` or `else` cannot have a `case`")
        return self

    def as_say(self) -> Plain:
        """The content for `ScriptBook.script`, in which `${group}` has no special meaning."""
        return self._plain() if self.ids is None else self.ids

    def as_answer(self) -> Content:
        """The content for a rule, in which `${group}` quotes the request."""
        if self.ids is not None:
            return self.ids
        plain = self._plain()
        return Quoting(plain) if groups_in(plain) else unquoted(plain)

    def _plain(self) -> Meaning | Raw:
        if self.raw is not None:
            return Raw(self.raw)
        calls = tuple(ToolCall(call.name, call.arguments) for call in self.calls)
        text = self.text and self.text * self.repeat
        return Meaning.of(text, reasoning=self.reasoning, calls=calls)


Answer = Annotated[
    SaySpec,
    BeforeValidator(
        lambda value: {"text": value} if isinstance(value, str) else value,
        json_schema_input_type=SaySpec | str,
    ),
]
"""What the model generates; a plain string instead of a mapping stands for its `text`."""

SaySpec.model_rebuild()


class RuleSpec(StrictModel):
    """A rule: which requests it answers, and what the model generates for them.

    Attributes:
        name: the rule's name in reports; by default `rule 1`, `rule 2`, ...
        when: the conditions that a request must meet; by default any request matches.
        say: what the model answers.
        turns: instead of `say`, what the model generates each time, if the server lets it generate several
            times for a request, as with built-in tools.
        choices: instead of `say`, the answer for each choice of a request with `n` > 1.
        times: the number of requests that the rule answers; by default any number.
        constrained: whether a grammar constrains the model (structured output, required or named tools),
            which forbids some of the whitespace that models write.
        limit: the number of tokens after which the answer is truncated, if the request allows more.
        delivery: the chunks of a streamed answer: a code such as `tokens_1`, `all`, `cut_at_3_7` (tokens) or
            `cut_after_12` (characters), or the number of tokens in each chunk; by default vLLM merges tokens
            that it has not sent yet.
    """

    name: str | None = None
    when: When = Field(default_factory=When)
    say: Answer | None = None
    turns: tuple[Answer, ...] = ()
    choices: tuple[Answer, ...] = ()
    times: StrictInt | None = Field(None, ge=1)
    constrained: StrictBool = False
    limit: StrictInt | None = Field(None, ge=1)
    delivery: DeliveryField | None = None

    @model_validator(mode="after")
    def _has_one_answer(self) -> RuleSpec:
        if [self.say is not None, bool(self.turns), bool(self.choices)].count(True) != 1:
            raise ValueError("a rule needs either 'say' or 'turns' or 'choices'")
        if self.delivery is not None and not self.delivery.is_held_by_server:
            raise ValueError(f"a server cannot deliver an answer as {self.delivery.chunks}")
        if any(answer.case for answer in (*self.turns, *self.choices)):
            raise ValueError("'case' is allowed in 'say', not in 'turns' or 'choices'")
        return self

    def as_rule(self, number: int, where: str) -> BookRule:
        """Converts to a `BookRule`; the number gives its default name, `where` is its file and line."""
        answers = self.turns or self.choices or tuple(filter(None, [self.say]))
        case, of = "", {}
        if self.say and self.say.case:
            case, of = self.say.case, {value: answer.as_answer() for value, answer in self.say.of.items()}
            answers = (self.say.else_,) if self.say.else_ else ()
        return BookRule(
            self.name or f"rule {number}",
            tuple(answer.as_answer() for answer in answers),
            when=self.when,
            case=case,
            of=of,
            times=self.times,
            by_choice=not self.turns,
            constrained=self.constrained,
            limit=self.limit,
            delivery=self.delivery,
            where=where,
        )


class BookFile(StrictModel):
    """A script book: an ordered list of rules; the first rule that matches a request answers it."""

    rules: tuple[RuleSpec, ...]

    @model_validator(mode="after")
    def _has_rules(self) -> BookFile:
        if not self.rules:
            raise ValueError("a book needs at least one rule")
        return self


def take_of(spec: str | dict[str, Any]) -> Plain:
    """The content of a step's `say`, a string or a mapping. Raises ValidationError if it is invalid."""
    return spec if isinstance(spec, str) else SaySpec.model_validate(spec).as_say()


def keys_at(location: Location) -> Collection[str]:
    """The keys that a mapping at a location in a book may have, for suggestions."""
    return keys_of(BookFile, location)


def rule_at(index: int, rule: RuleSpec, document: Document) -> BookRule:
    """Converts a rule of a book file; its index gives its default name and its line in the file."""
    return rule.as_rule(index + 1, f"{document.path.name}:{document.line(('rules', index))}")
