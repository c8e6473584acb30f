"""Checks a script book before a server starts: finds rules that can never work, and likely mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
from vllm_harness._protocol.core.fields import is_json_object
from vllm_harness._scripted.book import BookRule, Quoting
from vllm_harness._scripted.book_file import BookFile, BookFileError, RuleSpec, SaySpec, keys_at, rule_at
from vllm_harness._scripted.dialects import DialectError, find_dialect
from vllm_harness._scripted.encoding import check_ids, raw_text
from vllm_harness._scripted.meaning import Meaning
from vllm_harness._scripted.quoting import groups_in, sample

_Rule = tuple[int, RuleSpec, BookRule]
_LIKE_A_MARKER = re.compile(r"<[|｜]?/?[^<>\s=]{1,40}>|<\|\w{1,40}\|?|\[/?[A-Z_]{3,40}\]")
_ALIKE = 0.8
_WORDS = {"yes": "true", "no": "false", "on": "true", "off": "false"}
"""Words that YAML reads as booleans, and what it reads them as."""


@dataclass(frozen=True)
class Problem:
    """A mistake in a book.

    Attributes:
        severity: `error` for something that can never work, `warning` for a probable mistake.
        line: the line of the mistake in the file.
        rule: the name of the rule; empty if the problem is about the whole file.
        message, hint: what is wrong, and what to write instead.
    """

    severity: Literal["error", "warning"]
    line: int
    rule: str
    message: str
    hint: str = ""

    def text(self, path: Path) -> str:
        """Formats the problem for printing."""
        rule = f"{self.rule}: " if self.rule else ""
        hint = f"\n  try: {self.hint}" if self.hint else ""
        return f"{path}:{self.line}: {self.severity}: {rule}{self.message}{hint}"


@dataclass(frozen=True)
class CheckedBook:
    """A book's valid rules, and its problems."""

    path: Path
    rules: tuple[BookRule, ...]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """The number of problems that are errors."""
        return sum(problem.severity == "error" for problem in self.problems)

    def lines(self) -> list[str]:
        """Formats the problems for printing."""
        return [problem.text(self.path) for problem in self.problems]

    def usable(self) -> tuple[BookRule, ...]:
        """The rules. Raises BookFileError with all problems if any of them is an error."""
        if self.errors:
            raise BookFileError("the book cannot be served\n" + "\n".join(self.lines()))
        return self.rules


@dataclass(frozen=True)
class _Book:
    """The input of the checks.

    Attributes:
        rules: the valid rules: index, specification and rule.
        without_when: the rules whose only mistake is in `when`, parsed without it.
        entry: the entry of the model to serve; None to skip the checks that depend on the model.
        others: other model entries, which hints may suggest.
        args: flags of `vllm serve`.
    """

    document: Document
    rules: tuple[_Rule, ...]
    without_when: tuple[_Rule, ...]
    entry: ModelEntry | None
    others: tuple[ModelEntry, ...]
    args: tuple[str, ...]

    def problem(
        self, severity: Literal["error", "warning"], at: Location, message: str, hint: str
    ) -> Problem:
        return Problem(severity, self.document.line(at), _name_at(self.document, at), message, hint)

    def located(self) -> Iterator[tuple[Location, RuleSpec, BookRule]]:
        """The valid rules with their locations in the file."""
        for index, spec, rule in self.rules:
            yield ("rules", index), spec, rule

    def all_answers(self) -> Iterator[tuple[Location, BookRule, SaySpec]]:
        """The rules' answers with their locations; includes rules whose `when` is invalid."""
        return _answers((*self.rules, *self.without_when))


def _answers(rules: Iterable[_Rule]) -> Iterator[tuple[Location, BookRule, SaySpec]]:
    for index, spec, rule in rules:
        at: Location = ("rules", index)
        for key, answers in (("turns", spec.turns), ("choices", spec.choices)):
            for number, answer in enumerate(answers):
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
        entry: the entry of the model to serve; None to skip the checks that depend on the model.
        others: other model entries, which hints may suggest.
        args: flags of `vllm serve` for the server.

    Raises:
        YamlFileError: the file is not valid YAML.
    """
    document = read_yaml(path)
    problems: list[Problem] = []
    invalid = set[int | str]()
    try:
        BookFile.model_validate(document.data)
    except ValidationError as error:
        problems = list(_invalid(document, error))
        invalid = {location[1] for location, _ in document.located(error, keys_at) if len(location) > 1}
    data = document.data.get("rules") if isinstance(document.data, dict) else None
    rules, without_when = list[_Rule](), list[_Rule]()
    for index, item in enumerate(data if isinstance(data, list) else ()):
        if index not in invalid:
            rules.append(_rule(document, index, item))
        elif isinstance(item, dict):
            with suppress(ValidationError):
                rest = {key: value for key, value in item.items() if key != "when"}
                without_when.append(_rule(document, index, rest))
    book = _Book(document, tuple(rules), tuple(without_when), entry, tuple(others), tuple(args))
    problems += [problem for check in _CHECKS for problem in check(book)]
    problems.sort(key=lambda problem: problem.line)
    return CheckedBook(path, tuple(rule for _, _, rule in rules), tuple(problems))


def _rule(document: Document, index: int, data: object) -> _Rule:
    spec = RuleSpec.model_validate(data)
    return index, spec, rule_at(index, spec, document)


def _invalid(document: Document, error: ValidationError) -> Iterator[Problem]:
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
    for at, _, rule in book.located():
        if rule.name in first:
            hint = "give each rule another name, or omit `name`"
            yield book.problem("error", at, f"has the name of the rule at {first[rule.name]}", hint)
        first.setdefault(rule.name, rule.where)


def _unreachable(book: _Book) -> Iterator[Problem]:
    open_ended: list[BookRule] = []
    for at, _, rule in book.located():
        if before := next((earlier for earlier in open_ended if _covers(earlier, rule)), None):
            takes = "every request that this one matches" if before.when.as_json() else "every request"
            yield book.problem(
                "error",
                at,
                f"can never be taken: rule {before.name!r} ({before.where}) takes {takes}",
                f"move it before rule {before.name!r}, or give that rule `times` or a condition in `when`",
            )
        if rule.times is None and (not rule.case or rule.takes):
            open_ended.append(rule)


def _covers(before: BookRule, rule: BookRule) -> bool:
    wide, narrow = before.when.as_json(), rule.when.as_json()
    tools = set(wide.pop("tools", ())) <= set(narrow.pop("tools", ()))
    return tools and all(narrow.get(key) == value for key, value in wide.items())


def _groups(book: _Book) -> Iterator[Problem]:
    for at, _, rule in book.located():
        if rule.case and rule.case not in rule.when.groups:
            yield book.problem("error", (*at, "say", "case"), *_no_group(rule.case, rule))
    for at, rule, spec in _answers(book.rules):
        content = spec.as_answer()
        for group in groups_in(content.answer) if isinstance(content, Quoting) else ():
            if group not in rule.when.groups:
                yield book.problem("error", at, *_no_group(group, rule))


def _no_group(group: str, rule: BookRule) -> tuple[str, str]:
    known = sorted(rule.when.groups)
    near = get_close_matches(group, known, n=1)
    hint = f"name a part of a pattern: user: 'in (?P<{group}>[A-Z]+)'; or write $${{{group}}} for the text"
    return f"no pattern in `when` has a group {group!r}", f"did you mean {near[0]}?" if near else hint


def _formats(book: _Book) -> Iterator[Problem]:
    """Finds answers that the family's format cannot express."""
    if book.entry is None:
        return
    for at, rule, spec in book.all_answers():
        content = spec.as_answer()
        plain = sample(content) if isinstance(content, Quoting) else content
        if not isinstance(plain, Meaning | str):
            continue
        if error := _refusal(book.entry, plain, rule.constrained):
            others = [entry for entry in book.others if entry.stand_in]
            able = [entry.name for entry in others if not _refusal(entry, plain, rule.constrained)]
            other = f"; or serve {' or '.join(able)}, whose format can express it" if able else ""
            yield book.problem("error", at, error.message, error.hint + other)


def _refusal(entry: ModelEntry, content: Meaning | str, constrained: bool) -> DialectError | None:
    try:
        raw_text(entry, content, constrained=constrained)
    except DialectError as error:
        return error
    return None


def _ids(book: _Book) -> Iterator[Problem]:
    for at, _, spec in book.all_answers():
        if book.entry is not None and spec.ids is not None:
            try:
                check_ids(spec.ids, book.entry)
            except UsageError as error:
                yield book.problem("error", (*at, "ids"), error.message, error.hint)


def _raw_markers(book: _Book) -> Iterator[Problem]:
    known = find_dialect(book.entry.dialect).markers if book.entry and book.entry.dialect else ()
    for at, _, spec in book.all_answers():
        for like in dict.fromkeys(_LIKE_A_MARKER.findall(spec.raw or "")):
            if near := _misspelt(like, known):
                message = f"{like} in `raw` is not a marker of this family, but resembles {near}"
                yield book.problem(
                    "warning", (*at, "raw"), message, f"write {near}, unless the text should be malformed"
                )


def _misspelt(like: str, known: Sequence[str]) -> str | None:
    """The marker that a string resembles; only a string that looks like a closing marker can resemble one."""
    if any(like in marker for marker in known):
        return None
    closing = ("</", "[/")
    same = [marker for marker in known if marker.startswith(closing) == like.startswith(closing)]
    return next(iter(get_close_matches(like, same, n=1, cutoff=_ALIKE)), None)


def _arguments(book: _Book) -> Iterator[Problem]:
    for at, _, spec in book.all_answers():
        for number, call in enumerate(spec.calls):
            if isinstance(call.arguments, str) and not is_json_object(call.arguments):
                yield book.problem(
                    "warning",
                    (*at, "calls", number, "arguments"),
                    f"the arguments of {call.name} are not a JSON object: {call.arguments!r}",
                    "write them as a mapping, {city: Paris}, unless the call should be malformed",
                )


def _turns(book: _Book) -> Iterator[Problem]:
    flags = (*(book.entry.args if book.entry else ()), *book.args)
    if book.entry is None or any(flag.split("=")[0] == "--tool-server" for flag in flags):
        return
    for at, spec, _ in book.located():
        if len(spec.turns) > 1:
            yield book.problem(
                "warning",
                (*at, "turns"),
                "only the first of `turns` is used: without built-in tools, a request generates once",
                "write a rule for each request of a conversation, with `turn: 0`, `turn: 1`, ... in `when`; "
                "for built-in tools add `-- --tool-server ADDRESS`",
            )


def _words(book: _Book) -> Iterator[Problem]:
    """Finds unquoted words that YAML reads as true or false where a boolean is valid."""
    for at, _, _ in book.located():
        for word in _read_as_bool(book.document.node(at)):
            value = _WORDS[word.value.lower()]
            problem = book.problem(
                "warning",
                at,
                f"YAML reads {word.value} as {value}",
                f"write {value}, or '{word.value}' in quotes for the word",
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
