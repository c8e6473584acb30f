"""What a rule is."""

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
    """One rule, with all its words.

    Attributes:
        code: two letters of the area and a number.
        severity: of its findings; some places lower it (`why` says so).
        title: what it finds.
        why: why it matters and what it rests on.
        source: where it comes from.
        bad: an example that it finds.
        message: of its findings, with a placeholder for each fact; empty where the title has no facts to add.
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
        """The example as it should be."""
        return Example(self.bad.sample, (), self.bad.request)

    def message_with(self, facts: Mapping[str, object]) -> str:
        """The message of a finding.

        Args:
            facts: a value for each placeholder of the message; further ones are left aside.

        Raises:
            KeyError: a placeholder has no fact.
        """
        if self.message:
            return self.message.format_map(facts)
        return self.title[:1].lower() + self.title[1:]

    def finding(self, path: str = "$", expected: str = "", actual: str = "", **facts: object) -> Finding:
        """A finding about no single event.

        Args:
            path: JSON path.
            expected: what the contract wants, as text.
            actual: what stands there, as text.
            facts: what the message has placeholders for.
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
    """A rule whose bad example is a sample with these edits."""
    return Rule(code, severity, title, why, source, Example(sample, edits, request), message)
