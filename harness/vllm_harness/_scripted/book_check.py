"""A script book checked whole before anything starts: what can never work, and what is hardly meant."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import Document, Location, read_yaml
from vllm_harness._scripted.book import BookRule, Quoting, check_ids, raw_text
from vllm_harness._scripted.book_file import BookFile, BookFileError, RuleSpec, SaySpec, keys_at, rule_at
from vllm_harness._scripted.dialects import DialectError, markers
from vllm_harness._scripted.meaning import Meaning
from vllm_harness._scripted.quoting import groups_in, sample

_Rule = tuple[int, RuleSpec, BookRule]
_LIKE_A_MARKER = re.compile(r"<[|｜]?/?[^<>\s=]{1,40}>|<\|\w{1,40}\|?|\[/?[A-Z_]{3,40}\]")
_ALIKE = 0.8
_WORDS = {"yes": "true", "no": "false", "on": "true", "off": "false"}
"""What YAML reads as true or false, and people as words."""


@dataclass(frozen=True)
class Problem:
    """A mistake in a book.

    Attributes:
        severity: an error is what can never work, a warning what is hardly meant.
        line: in the file.
        rule: its name; empty where it is about the whole file.
        message, hint: what is wrong, and what to write instead.
    """

    severity: Literal["error", "warning"]
    line: int
    rule: str
    message: str
    hint: str = ""

    def text(self, path: Path) -> str:
        """The problem as it is printed."""
        rule = f"{self.rule}: " if self.rule else ""
        hint = f"\n  try: {self.hint}" if self.hint else ""
        return f"{path}:{self.line}: {self.severity}: {rule}{self.message}{hint}"


@dataclass(frozen=True)
class CheckedBook:
    """A book with its problems; the rules are those that can be read."""

    path: Path
    rules: tuple[BookRule, ...]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """How many problems are errors."""
        return sum(problem.severity == "error" for problem in self.problems)

    def lines(self) -> list[str]:
        """The problems as they are printed."""
        return [problem.text(self.path) for problem in self.problems]

    def usable(self) -> tuple[BookRule, ...]:
        """The rules. Raises BookFileError with all problems where one is an error."""
        if self.errors:
            raise BookFileError("the book cannot be served\n" + "\n".join(self.lines()))
        return self.rules


@dataclass(frozen=True)
class _Book:
    """What the checks look at.

    Attributes:
        rules: those that can be read: their places in the list, as they are written, and as they are meant.
        halves: those of which all but `when` can be read, without it.
        entry: the model that is to be served; None: only what holds for every model is checked.
        others: the entries that may serve instead.
        args: flags of `vllm serve`.
    """

    document: Document
    rules: tuple[_Rule, ...]
    halves: tuple[_Rule, ...]
    entry: ModelEntry | None
    others: tuple[ModelEntry, ...]
    args: tuple[str, ...]

    def problem(
        self, severity: Literal["error", "warning"], at: Location, message: str, hint: str
    ) -> Problem:
        return Problem(severity, self.document.line(at), _name_at(self.document, at), message, hint)

    def each(self) -> Iterator[tuple[Location, RuleSpec, BookRule]]:
        """The rules as they are written and as they are meant, each with its location."""
        for index, spec, rule in self.rules:
            yield ("rules", index), spec, rule

    def answers(self) -> Iterator[tuple[Location, BookRule, SaySpec]]:
        """The answers of the rules, each with its location."""
        return _answers(self.rules)

    def all_answers(self) -> Iterator[tuple[Location, BookRule, SaySpec]]:
        """The same, and those of rules whose `when` is wrong."""
        return _answers((*self.rules, *self.halves))


def _answers(rules: Iterable[_Rule]) -> Iterator[tuple[Location, BookRule, SaySpec]]:
    for index, spec, rule in rules:
        at: Location = ("rules", index)
        for key, given in (("turns", spec.turns), ("choices", spec.choices)):
            for number, answer in enumerate(given):
                yield (*at, key, number), rule, answer
        if spec.say and not spec.say.case:
            yield (*at, "say"), rule, spec.say
        elif spec.say:
            for value, answer in spec.say.of.items():
                yield (*at, "say", "of", value), rule, answer
            if spec.say.else_:
                yield (*at, "say", "else"), rule, spec.say.else_


def check_book(
    path: Path,
    entry: ModelEntry | None = None,
    *,
    others: Sequence[ModelEntry] = (),
    args: Sequence[str] = (),
) -> CheckedBook:
    """Checks a book file.

    Args:
        path: the file.
        entry: the model that is to be served; None: only what holds for every model is checked.
        others: the entries that a hint may name instead.
        args: flags of `vllm serve` with which it is to be served.

    Raises:
        YamlFileError: the file cannot be read as YAML.
    """
    document = read_yaml(path)
    found, wrong = [], set[int | str]()
    try:
        BookFile.model_validate(document.data)
    except ValidationError as error:
        found = list(_unreadable(document, error))
        wrong = {location[1] for location, _ in document.located(error, keys_at) if len(location) > 1}
    rules = tuple(_readable(document, wrong))
    book = _Book(document, rules, tuple(_halves(document, wrong)), entry, tuple(others), tuple(args))
    found += [problem for check in _CHECKS for problem in check(book)]
    problems = tuple(sorted(found, key=lambda problem: problem.line))
    return CheckedBook(path, tuple(rule for _, _, rule in rules), problems)


def _readable(document: Document, wrong: Collection[int | str]) -> Iterator[_Rule]:
    for index, data in enumerate(_given(document)):
        if index not in wrong:
            spec = RuleSpec.model_validate(data)
            yield index, spec, rule_at(index, spec, document)


def _halves(document: Document, wrong: Collection[int | str]) -> Iterator[_Rule]:
    for index, data in enumerate(_given(document)):
        if index in wrong and isinstance(data, dict):
            with suppress(ValidationError):
                spec = RuleSpec.model_validate({key: data[key] for key in data if key != "when"})
                yield index, spec, rule_at(index, spec, document)


def _given(document: Document) -> Sequence[object]:
    given = document.data.get("rules") if isinstance(document.data, dict) else None
    return given if isinstance(given, list) else ()


def _unreadable(document: Document, error: ValidationError) -> Iterator[Problem]:
    for location, message in document.located(error, keys_at):
        key = ".".join(map(str, location[2:])) if location[:1] == ("rules",) else ".".join(map(str, location))
        yield Problem(
            "error", document.line(location), _name_at(document, location), f"{key}: {message}".lstrip(": ")
        )


def _name_at(document: Document, location: Location) -> str:
    match location:
        case ("rules", int(index), *_):
            rule = document.data["rules"][index]
            name = rule.get("name") if isinstance(rule, dict) else None
            return f"rule {name!r}" if isinstance(name, str) else f"rule {index + 1}"
    return ""


def _names(book: _Book) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for at, _, rule in book.each():
        if rule.name in first:
            hint = "give the rules names that tell them apart, or leave `name` out"
            yield book.problem("error", at, f"has the name of the rule at {first[rule.name]}", hint)
        first.setdefault(rule.name, rule.where)


def _unreachable(book: _Book) -> Iterator[Problem]:
    open_ended: list[BookRule] = []
    for at, _, rule in book.each():
        if before := next((each for each in open_ended if _covers(each, rule)), None):
            whole = "every request" if not before.when.as_json() else "every request that this one is for"
            yield book.problem(
                "error",
                at,
                f"can never be taken: rule {before.name!r} ({before.where}) takes {whole}",
                f"put it before rule {before.name!r}, or give that one `times` or a condition in `when`",
            )
        if rule.times is None and (not rule.case or rule.takes):
            open_ended.append(rule)


def _covers(before: BookRule, rule: BookRule) -> bool:
    wanted, given = before.when.as_json(), rule.when.as_json()
    tools = set(wanted.pop("tools", ())) <= set(given.pop("tools", ()))
    return tools and all(given.get(key) == value for key, value in wanted.items())


def _groups(book: _Book) -> Iterator[Problem]:
    for at, _, rule in book.each():
        if rule.case and rule.case not in rule.when.groups:
            yield book.problem("error", (*at, "say", "case"), *_no_group(rule.case, rule))
    for at, rule, spec in book.answers():
        say = spec.as_answer()
        for group in groups_in(say.say) if isinstance(say, Quoting) else ():
            if group not in rule.when.groups:
                yield book.problem("error", at, *_no_group(group, rule))


def _no_group(group: str, rule: BookRule) -> tuple[str, str]:
    known = sorted(rule.when.groups)
    near = get_close_matches(group, known, n=1)
    named = f"name a part of a pattern: user: 'in (?P<{group}>[A-Z]+)'; $${{{group}}} stands for itself"
    return f"no pattern in `when` has a group {group!r}", f"did you mean {near[0]}?" if near else named


def _formats(book: _Book) -> Iterator[Problem]:
    """What the family's format cannot say."""
    if book.entry is None:
        return
    for at, rule, spec in book.all_answers():
        say = spec.as_answer()
        plain = sample(say) if isinstance(say, Quoting) else say
        if isinstance(plain, Meaning | str):
            try:
                raw_text(book.entry, plain, constrained=rule.constrained)
            except DialectError as error:
                yield book.problem("error", at, error.message, _instead(book, error, plain, rule.constrained))


def _instead(book: _Book, error: DialectError, say: Meaning | str, constrained: bool) -> str:
    able = [each.name for each in book.others if each.stand_in and _can_say(each, say, constrained)]
    return f"{error.hint}; or serve {' or '.join(able)}, whose format has it" if able else error.hint


def _can_say(entry: ModelEntry, say: Meaning | str, constrained: bool) -> bool:
    try:
        raw_text(entry, say, constrained=constrained)
    except DialectError:
        return False
    return True


def _ids(book: _Book) -> Iterator[Problem]:
    for at, _, spec in book.all_answers():
        if book.entry is not None and spec.ids is not None:
            try:
                check_ids(spec.ids, book.entry)
            except UsageError as error:
                yield book.problem("error", (*at, "ids"), error.message, error.hint)


def _raw_markers(book: _Book) -> Iterator[Problem]:
    known = markers(book.entry.dialect) if book.entry and book.entry.dialect else ()
    for at, _, spec in book.all_answers():
        for like in dict.fromkeys(_LIKE_A_MARKER.findall(spec.raw or "")):
            if near := _misspelt(like, known):
                message = f"{like} in `raw` is no marker of this family, but nearly {near}"
                yield book.problem(
                    "warning", (*at, "raw"), message, f"write {near}, unless the text is to be malformed"
                )


def _misspelt(like: str, known: Sequence[str]) -> str | None:
    """The marker that a text nearly is: its opening or closing one, as the text is."""
    if like in known or any(like in each for each in known):
        return None
    same = [each for each in known if each.startswith(("</", "[/")) == like.startswith(("</", "[/"))]
    return next(iter(get_close_matches(like, same, n=1, cutoff=_ALIKE)), None)


def _arguments(book: _Book) -> Iterator[Problem]:
    for at, _, spec in book.all_answers():
        for number, call in enumerate(spec.calls):
            if isinstance(call.arguments, str) and not _is_object(call.arguments):
                yield book.problem(
                    "warning",
                    (*at, "calls", number, "arguments"),
                    f"the arguments of {call.name} are no JSON object: {call.arguments!r}",
                    "write them as a mapping, {city: Paris}, unless the call is to be malformed",
                )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _turns(book: _Book) -> Iterator[Problem]:
    flags = (*(book.entry.args if book.entry else ()), *book.args)
    if book.entry is None or any(flag.split("=")[0] == "--tool-server" for flag in flags):
        return
    for at, spec, _ in book.each():
        if len(spec.turns) > 1:
            yield book.problem(
                "warning",
                (*at, "turns"),
                "only the first of `turns` is used: without built-in tools, a request is generated for once",
                "write a rule for each request of a conversation, with `turn: 0`, `turn: 1`, ... in `when`; "
                "for built-in tools add `-- --tool-server ADDRESS`",
            )


def _words(book: _Book) -> Iterator[Problem]:
    """Plain words that YAML reads as true or false where that is allowed."""
    for at, _, _ in book.each():
        for word in _read_as_bool(book.document.node(at)):
            read = _WORDS[word.value.lower()]
            problem = book.problem(
                "warning",
                at,
                f"YAML reads {word.value} as {read}",
                f"write {read}, or '{word.value}' in quotes for the word",
            )
            yield replace(problem, line=word.start_mark.line + 1)


def _read_as_bool(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == "tag:yaml.org,2002:bool" and node.value.lower() in _WORDS:
            yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _read_as_bool(item)
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for part in pair:
                yield from _read_as_bool(part)


_CHECKS = (_names, _unreachable, _groups, _formats, _ids, _raw_markers, _arguments, _turns, _words)
