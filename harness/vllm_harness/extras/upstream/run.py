"""The state of a pytest run of upstream's tests: its servers, books and results."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._defects.registry import find, load_defects
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine import interrupts
from vllm_harness._protocol.known import holds
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import describe_machine, new_header
from vllm_harness._runs.records import End, Kind
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.dialects.dialect import DialectError
from vllm_harness._scripted.in_server.vllm_harness_names import DEFAULT_BOOK
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.upstream.books import UpstreamRule, book_of
from vllm_harness.extras.upstream.results import TestResult, UpstreamResults
from vllm_harness.extras.upstream.run_records import case_of, target_of
from vllm_harness.extras.upstream.servers import UpstreamServers
from vllm_harness.extras.upstream.tests_utils import RemoteVLLMServer
from vllm_harness.extras.upstream.unit_tests import run_unit_tests
from vllm_harness.extras.upstream.vllm_process import VllmProcess

_SHOWN_CHARACTERS = 200
_IMPORT = re.compile(
    r"ImportError: cannot import name '\w+' from 'vllm\.|ModuleNotFoundError: No module named 'vllm\."
)


@dataclass
class FaultyAnswerTrial:
    """A run of a test with a wrong answer.

    Attributes:
        rules: the rules with which the servers answer.
        void: whether the trial shows nothing about the test: the test timed out, or it got no wrong answer,
            since the model's family cannot express that answer or the request's grammar forbids it.
    """

    rules: tuple[UpstreamRule, ...]
    void: bool = False


@dataclass
class UpstreamRun:
    """The state of a run of upstream's tests.

    Attributes:
        servers: the servers of the run.
        vllm_process: the process that holds the vLLM objects that test files import.
        wrong_answers: the kinds of wrong answers with which each passed test runs again.
        results: the results so far.
        current: the result of the running test.
        used_rules: the names of the rules that the model has followed in the running test.
        trial: the trial of a wrong answer that is running; None while the book's answers are used.
        release: the release whose test files run; empty for a checkout of vLLM.
        unit_files: for each file, the number of tests that start no server and import vLLM or torch.
    """

    servers: UpstreamServers
    vllm_process: VllmProcess
    wrong_answers: tuple[str, ...] = ()
    results: UpstreamResults = field(default_factory=UpstreamResults)
    current: TestResult = field(default_factory=TestResult)
    used_rules: set[str] = field(default_factory=set)
    trial: FaultyAnswerTrial | None = None
    release: str = ""
    unit_files: dict[str, int] = field(default_factory=dict)
    _writer: RunWriter | None = None
    _started: float = field(default_factory=time.monotonic)

    @property
    def scripted(self) -> bool:
        """Whether the model's answers come from the books."""
        return self.servers.lane == "scripted"

    def result(self, item: pytest.Item) -> TestResult:
        """The result of a test."""
        return self.results.of(path_in_upstream(item.path), name_of(item))

    def add_retries(self, number: int) -> None:
        """Adds the number of requests that a test's helper has repeated."""
        self.current.retries += number

    @contextmanager
    def scripts(self, item: pytest.Item) -> Iterator[None]:
        """Makes a test's servers answer with its rules; afterwards, records requests that no rule matched."""
        if not self.scripted:
            yield
            return
        rules = book_of(item.path).rules(name_of(item)) if self.trial is None else self.trial.rules
        books = self._books_of(item, rules)
        lacking: list[str] = []
        try:
            yield
        finally:
            for server, book in books:
                if server.alive():
                    uses = book.report()["uses"]
                    self._note(name_of(item), uses)
                    lacking += _missing_from_prompts(book, rules, uses) if self.trial is None else []
        if lacking:
            pytest.fail("; ".join(lacking), pytrace=False)

    def _books_of(
        self, item: pytest.Item, rules: tuple[UpstreamRule, ...]
    ) -> list[tuple[RemoteServer, ScriptBook]]:
        """The servers of a test, each with a book that contains the rules."""
        try:
            return [_written(server, rules) for server in _servers_of(item)]
        except DialectError as error:
            if self.trial is None:
                raise
            self.trial.void = True
            pytest.skip(error.message)

    def _note(self, test: str, uses: list[dict[str, Any]]) -> None:
        if self.trial is not None:
            states = [generation["state"] for use in uses for generation in use["generations"]]
            self.trial.void |= "refused" in states
            return
        without = [use["no_script"] for use in uses if use["no_script"]]
        self.current.unscripted += [_rule_for(test, why) for why in without]
        self.used_rules |= {use["script"] for use in uses if (use["status"] or 0) < HTTPStatus.BAD_REQUEST}
        self.current.asked |= bool(self.used_rules)

    def start(self, folder: Path) -> None:
        """Creates the run's folder. Raises UsageError if that fails."""
        secrets = secret_values(os.environ)
        self._writer = RunWriter.begin(folder, new_header(Kind.UPSTREAM, self.servers.lane), secrets)
        self._writer.write(target_of(self.servers))

    def write(self, file: str, test: str, started: float | None = None) -> None:
        """Writes the record of a test to the run's folder."""
        assert self._writer
        self._writer.write(case_of(file, test, self.results.of(file, test), started))

    def unit_tests(self, config: pytest.Config) -> bool:
        """Runs the tests that start no server, and returns whether any of them failed."""
        failed, option = False, config.option
        arguments = ["-k", option.keyword, "-m", option.markexpr, *self.unit_files]
        for file, test, result in run_unit_tests(self.servers.environment, config.rootpath, arguments):
            if test in self.results.tests.get(file, {}):
                continue  # the test uses a server, and has already run
            if result.outcome == "failed":
                self.explain_failure(config.rootpath / file, test, result)
            self.results.tests.setdefault(file, {})[test] = result
            self.write(file, test)
            failed = failed or result.outcome == "failed"
        return failed

    def explain_failure(self, path: Path, test: str, result: TestResult) -> None:
        """Changes the result of a failed unit test if a known defect or an old vLLM explains the failure."""
        if defect := self.known_defect(path, test, result.why):
            result.outcome, result.why = "defect", defect
        elif why := self._newer(path, test, result.why):
            result.outcome, result.why = "newer", why

    def _newer(self, path: Path, test: str, failure: str) -> str | None:
        version = self.servers.environment.vllm_version
        if not test and self.release and _IMPORT.match(failure) and holds(f"<{self.release}", version):
            return f"imports what vLLM {version} does not have: {failure}"
        newer = book_of(path).newer_feature(test)
        if newer and holds(f"<{newer.since}", version) and re.search(newer.failure, failure, re.DOTALL):
            return f"since {newer.since}: {newer.why}"
        return None

    def finish(self, folder: Path, exit_code: int) -> None:
        """Stops the servers and writes the results."""
        self.servers.stop()
        self.vllm_process.stop()
        assert self._writer
        self._writer.write(End(at=time.time(), exit_code=interrupts.exit_code(exit_code)))
        self._writer.close()
        self.results.dropped = self.servers.dropped
        self.results.about = {
            "environment": self.servers.environment.describe(),
            "vllm": self.servers.environment.vllm_version,
            "short": self.servers.environment.short_version,
            "tests": self.release,
            "machine": describe_machine(),
            "lane": self.servers.lane,
            "servers": self.servers.started,
            "seconds": round(time.monotonic() - self._started, 1),
        }
        self.results.write(folder)

    def known_defect(self, path: Path, test: str, failure: str) -> str | None:
        """The id of the known defect that a failure shows according to the book; None for other failures.

        Args:
            path: the test's file.
            test: the name of the test, as books write it.
            failure: the type and the message of the exception.
        """
        known = book_of(path).defect(test)
        if known is None or not re.search(known.failure, failure, re.DOTALL):
            return None
        version = self.servers.environment.vllm_version
        return known.id if find(known.id, load_defects()).holds_for(version) else None


def path_in_upstream(path: Path) -> str:
    """A test file's path in the results, which starts with `tests`."""
    text = path.as_posix()
    return text[text.rfind("/tests/") + 1 :]


def name_of(item: pytest.Item) -> str:
    """A test's name in the books, with its class and parameters."""
    return item.nodeid.partition("::")[2]


def _servers_of(item: pytest.Item) -> list[RemoteServer]:
    """The servers among the values of a test's fixtures."""
    values: list[Any] = list(getattr(item, "funcargs", {}).values())
    servers = [value.server for value in values if isinstance(value, RemoteVLLMServer) and value.server]
    return list(dict.fromkeys(servers))


def _written(server: RemoteServer, rules: tuple[UpstreamRule, ...]) -> tuple[RemoteServer, ScriptBook]:
    ScriptBook(server.endpoint, server.entry, name=DEFAULT_BOOK).close()
    book = ScriptBook(server.endpoint, server.entry, name=DEFAULT_BOOK)
    for number, rule in enumerate(rules, start=1):
        book.add(replace(rule.as_rule(number, ""), keep_prompt=bool(rule.prompt)))
    return server, book


def _missing_from_prompts(
    book: ScriptBook, rules: tuple[UpstreamRule, ...], uses: list[dict[str, Any]]
) -> list[str]:
    """A message for each string that a rule's `prompt` requires and that vLLM's prompt lacks."""
    wanted = {rule.name: rule.prompt for rule in rules if rule.prompt}
    found = []
    for use in uses:
        for text in map(book.decode, use["prompts"]):
            found += [
                f"the prompt from vLLM lacks {each!r}, without which no model can give the answer of "
                f"rule {use['script']!r}; it ends with {text[-_SHOWN_CHARACTERS:]!r}"
                for each in wanted.get(use["script"], ())
                if each not in text
            ]
    return found


def _rule_for(test: str, why: str) -> str:
    """A rule to paste into a book, for a request that no rule matched."""
    return f"  {test.partition('[')[0]}:  # {why}\n    - say: TO BE WRITTEN"
