"""The checks for tests: validate streams and bodies against the API's contract, and compare them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from vllm_harness._protocol import (
    Finding,
    KnownDeviation,
    apply_known,
    compare_stream,
    validate_body,
    validate_stream,
)
from vllm_harness._protocol.bodies import placed_as_in_stream
from vllm_harness._protocol.conversation.compare import matters
from vllm_harness._protocol.core.events import AnyEvent, Api
from vllm_harness._testing.content import UnexpectedContent
from vllm_harness._testing.session import BODY


@dataclass
class Checker:
    """Fails a test on findings in the answers that it received, except known deviations.

    Attributes:
        known: the known deviations of the model entry.
        version: the server's version.
        exact: whether the model answers exactly what is scripted.
        findings: all findings so far, known ones marked.
        report: is called with the findings in an answer and the answer's id.
        uncalled: the names of the check fixtures that the test requested and has not called yet.
    """

    known: Sequence[KnownDeviation]
    version: str
    exact: bool
    findings: list[Finding] = field(default_factory=list)
    report: Callable[[Sequence[Finding], str], None] = lambda findings, answer: None
    uncalled: set[str] = field(default_factory=set)

    def judge(
        self, findings: Iterable[Finding], answer: str, error: type[AssertionError] = AssertionError
    ) -> None:
        """Adds the findings in one answer. Raises `error` if one of them counts as a failure."""
        marked = apply_known(findings, self.known, self.version)
        self.findings += marked
        self.report(marked, answer)
        if counting := [finding for finding in marked if finding.counts]:
            raise error("\n".join(map(str, counting)))

    def check_calls(self, item: pytest.Item) -> None:
        """Fails a test that passed without calling a check fixture that it requested."""
        if item.stash.get(BODY, None) == "passed" and self.uncalled:
            names = ", ".join(sorted(self.uncalled))
            pytest.fail(f"the test has the fixture {names} and never called it", pytrace=False)


class _Check:
    _fixture: str

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        checker.uncalled.add(self._fixture)

    def _judge(self, *args: Any) -> None:
        self._checker.uncalled.discard(self._fixture)
        self._checker.judge(*args)


class StreamCheck(_Check):
    """The fixture `check_stream`: validates a whole stream of any API."""

    _fixture = "check_stream"

    def __call__(
        self,
        events: Iterable[AnyEvent],
        *,
        api: Api | None = None,
        request: Mapping[str, Any] | None = None,
        resumed: bool | None = None,
    ) -> None:
        """Validates a stream.

        Args:
            events, api, request, resumed: the arguments of `validate_stream`.

        Raises:
            AssertionError: a finding is not a known deviation of the model entry.
        """
        seen = list(events)
        findings = validate_stream(seen, api=api, request=request, resumed=resumed)
        self._judge(findings, answer_of(*seen[:1]))


class BodyCheck(_Check):
    """The fixture `check_body`: validates a body of any API, or an error body."""

    _fixture = "check_body"

    def __call__(
        self,
        body: Mapping[str, Any] | BaseModel,
        *,
        api: Api | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        """Validates a body.

        Args:
            body, api, request: the arguments of `validate_body`.

        Raises:
            AssertionError: a finding is not a known deviation of the model entry.
        """
        findings = validate_body(body, api=api, request=request)
        self._judge(placed_as_in_stream(findings, body), answer_of(body))


class SameCheck(_Check):
    """The fixture `check_same`: compares a stream with the body that answers the same request."""

    _fixture = "check_same"

    def __call__(
        self,
        events: Iterable[AnyEvent],
        body: Mapping[str, Any] | BaseModel,
        *,
        ignore: Collection[str] = (),
    ) -> None:
        """Compares a stream's deltas, its terminal event and a body by meaning; null equals an absent value.

        Args:
            events: the stream, of any API.
            body: the non-streaming answer to the same request; ids and times are not compared.
            ignore: further keys that are not compared with the body.

        Raises:
            AssertionError: they differ, other than by a known deviation. If the model is not scripted, a
                difference from the body is unexpected content, for which the test may run again.
        """
        seen = list(events)
        within, answer = compare_stream(seen), answer_of(*seen[:1])
        self._judge(filter(matters, within), answer)
        from_body = compare_stream(seen, body, ignore=ignore)[len(within) :]
        error = AssertionError if self._checker.exact else UnexpectedContent
        self._judge(filter(matters, from_body), answer, error)


def answer_of(*values: Any) -> str:
    """The id of an answer of any API, from its body or its first event; empty if it has none."""
    for value in values:
        for whole in (_field(value, "response"), _field(value, "message"), value):
            if isinstance(answer := _field(whole, "id"), str):
                return answer
    return ""


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
