"""The validator in tests: a stream, a body, and a stream held against its non-streaming twin."""

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
from vllm_harness._testing.content import UnexpectedContent
from vllm_harness._testing.session import BODY


@dataclass
class Checker:
    """Judges what one test received; findings that are known deviations do not fail.

    Attributes:
        known: what is known of the model entry.
        version: version of the server.
        exact: whether the model answers exactly what is scripted.
        findings: all there were, known ones marked.
        judged: gets the findings in an answer, and the answer's id.
        called: names of the checks that the test called.
    """

    known: Sequence[KnownDeviation]
    version: str
    exact: bool
    findings: list[Finding] = field(default_factory=list)
    judged: Callable[[Sequence[Finding], str], None] = lambda findings, answer: None
    called: set[str] = field(default_factory=set)

    def stream(self, events: Iterable[Any], **options: Any) -> None:
        """Validates a whole stream of any API; options as of `validate_stream`."""
        self.called.add("check_stream")
        seen = list(events)
        self._judge(validate_stream(seen, **options), answer_of(*seen[:1]))

    def body(self, body: Mapping[str, Any] | BaseModel, **options: Any) -> None:
        """Validates a body of any API, or an error body; options as of `validate_body`."""
        self.called.add("check_body")
        self._judge(placed_as_in_stream(validate_body(body, **options), body), answer_of(body))

    def same(
        self, events: Iterable[Any], body: Mapping[str, Any] | BaseModel, *, ignore: Collection[str] = ()
    ) -> None:
        """Compares a stream's deltas, its terminal event and a body by what they mean: null is as absent.

        Args:
            events: the stream, of any API.
            body: the non-streaming answer to the same request; ids and times are left aside.
            ignore: further keys to leave aside when comparing with the body.

        Raises:
            AssertionError: they differ, and not by a known deviation.
            UnexpectedContent: the same where the model is not scripted, for it answered two requests.
        """
        self.called.add("check_same")
        seen = list(events)
        within, answer = compare_stream(seen), answer_of(*seen[:1])
        self._judge(filter(matters, within), answer)
        twice = compare_stream(seen, body, ignore=ignore)[len(within) :]
        self._judge(filter(matters, twice), answer, AssertionError if self.exact else UnexpectedContent)

    def want_call(self, name: str, item: pytest.Item) -> None:
        """Fails a test that passed and has a check that it never called."""
        if item.stash.get(BODY, None) == "passed" and name not in self.called:
            pytest.fail(f"the test has the fixture {name} and never called it", pytrace=False)

    def _judge(
        self, findings: Iterable[Finding], answer: str, error: type[AssertionError] = AssertionError
    ) -> None:
        marked = apply_known(findings, self.known, self.version)
        self.findings += marked
        self.judged(marked, answer)
        if counting := [finding for finding in marked if finding.counts]:
            raise error("\n".join(map(str, counting)))


def answer_of(*values: Any) -> str:
    """The id of an answer of any API, from its body or its first event; empty where it has none."""
    for value in values:
        for whole in (_field(value, "response"), _field(value, "message"), value):
            if isinstance(found := _field(whole, "id"), str):
                return found
    return ""


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
