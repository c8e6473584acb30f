"""Rules, and how modules declare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_harness._protocol.core.examples import Edit, Example
from vllm_harness._protocol.core.findings import Finding, Severity

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

TRAFFIC = "recorded OpenAI traffic (64 streams, 6,753 events; 306 bodies)"
SCHEMA = "OpenAI's OpenAPI description 2.3.0 and the openai SDK's types"
CHAT = "the openai SDK's types (openai.types.chat) and OpenAI's API reference"
MESSAGES = (
    "Anthropic's published API (https://docs.anthropic.com/en/api/messages, "
    "https://docs.anthropic.com/en/docs/build-with-claude/streaming) and the anthropic SDK's types"
)
SSE = "https://html.spec.whatwg.org/multipage/server-sent-events.html"
HARNESS = "the harness itself"


@dataclass(frozen=True)
class Rule:
    """A rule, with the texts that describe it.

    Attributes:
        code: two letters for the area, and a number.
        severity: the severity of its findings; some checks lower it, as `why` says.
        title: what the rule finds.
        why: why the rule matters, and the evidence for it.
        source: the specification or the recorded traffic that the rule is based on.
        bad: an example that breaks the rule.
        message: the message of its findings, with a placeholder for each fact; empty if the title is enough.
    """

    code: str
    severity: Severity
    title: str
    why: str
    source: str
    bad: Example
    message: str = ""

    @property
    def good(self) -> Example:
        """The example without its fault."""
        return Example(self.bad.sample, (), self.bad.request)

    def message_with(self, facts: Mapping[str, object]) -> str:
        """The message of a finding.

        Args:
            facts: a value for each placeholder of the message; others are ignored.

        Raises:
            KeyError: a placeholder has no value.
        """
        if self.message:
            return self.message.format_map(facts)
        return self.title[:1].lower() + self.title[1:]

    def finding(self, path: str = "$", expected: str = "", actual: str = "", **facts: object) -> Finding:
        """A finding that does not belong to a single event.

        Args:
            path: the JSON path.
            expected: the value that the contract requires, as text.
            actual: the value at the path, as text.
            facts: the values for the placeholders in the message.
        """
        return Finding(self.code, self.severity, None, path, self.message_with(facts), expected, actual)


def rule(
    code: str,
    title: str,
    why: str,
    sample: str,
    *edits: Edit,
    severity: Severity = ERROR,
    source: str = TRAFFIC,
    message: str = "",
    request: dict[str, Any] | None = None,
) -> Rule:
    """Declares a rule whose bad example is a sample with these edits."""
    return Rule(code, severity, title, why, source, Example(sample, edits, request), message)
