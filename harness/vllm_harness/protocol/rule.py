"""What a rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm_harness.protocol.examples import Edit, Example
from vllm_harness.protocol.findings import Severity

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
    """One rule.

    Attributes:
        code: two letters of the area and a number.
        severity: of its findings; some places lower it (`why` says so).
        title: what it finds.
        why: why it matters and what it rests on.
        source: where it comes from.
        bad: an example that it finds.
    """

    code: str
    severity: Severity
    title: str
    why: str
    source: str
    bad: Example

    @property
    def good(self) -> Example:
        """The example as it should be."""
        return Example(self.bad.sample, (), self.bad.request)


def rule(
    code: str,
    severity: Severity,
    title: str,
    why: str,
    source: str,
    sample: str,
    *edits: Edit,
    request: dict[str, Any] | None = None,
) -> Rule:
    """A rule whose bad example is a sample with these edits."""
    return Rule(code, severity, title, why, source, Example(sample, edits, request))
