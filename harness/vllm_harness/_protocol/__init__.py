"""The validator: coded findings over streams and bodies of Responses, Chat Completions and Messages.

The package consists of pure functions over events. It imports nothing from the rest of `vllm_harness` except
the base class of its errors and the table of extras.

- `core`: the code that the APIs share: findings, rules, reports, events, server-sent events, fields
- `responses`, `chat`, `messages`: a package for each API. `schema` holds the published shapes as tables;
  `objects` and `stream` check bodies and streams; `object_rules` and `stream_rules` declare the rules;
  `accumulate` folds a stream into a body, and `render` makes streams and bodies from finished parts. A
  Responses stream has two more levels, `items` and `texts`, with their own rules.
- `conversation`: checks across answers: exchanges, comparisons

The other modules are entry points for all APIs: streams, bodies, captures, watching, known (deviations),
marking, rules (all of them), samples, explain, formats.

Imports point one way: core <- responses, chat, messages <- conversation <- entry points.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_harness._protocol.bodies import validate_body
    from vllm_harness._protocol.chat.accumulate import ChatAccumulator
    from vllm_harness._protocol.conversation.checks import validate_conversation
    from vllm_harness._protocol.conversation.compare import compare_responses, compare_stream
    from vllm_harness._protocol.conversation.exchange import Exchange
    from vllm_harness._protocol.core.errors import ProtocolInputError
    from vllm_harness._protocol.core.findings import Finding, Severity
    from vllm_harness._protocol.core.sse import SSEEvent, SSEParser, parse_sse, parse_sse_async
    from vllm_harness._protocol.core.timing import TimingFacts, timing_facts
    from vllm_harness._protocol.known import KnownDeviation
    from vllm_harness._protocol.marking import apply_known
    from vllm_harness._protocol.messages.accumulate import MessageAccumulator
    from vllm_harness._protocol.responses.accumulate import ResponseAccumulator
    from vllm_harness._protocol.streams import StreamValidator, validate_stream, validate_stream_async
    from vllm_harness._protocol.watching import ProtocolViolation, Watched, watch, watch_async

__all__ = [
    "ChatAccumulator",
    "Exchange",
    "Finding",
    "KnownDeviation",
    "MessageAccumulator",
    "ProtocolInputError",
    "ProtocolViolation",
    "ResponseAccumulator",
    "SSEEvent",
    "SSEParser",
    "Severity",
    "StreamValidator",
    "TimingFacts",
    "Watched",
    "apply_known",
    "compare_responses",
    "compare_stream",
    "parse_sse",
    "parse_sse_async",
    "timing_facts",
    "validate_body",
    "validate_conversation",
    "validate_stream",
    "validate_stream_async",
    "watch",
    "watch_async",
]

_MODULES = {
    "bodies": "validate_body",
    "chat.accumulate": "ChatAccumulator",
    "conversation.checks": "validate_conversation",
    "conversation.compare": "compare_responses compare_stream",
    "conversation.exchange": "Exchange",
    "core.errors": "ProtocolInputError",
    "core.findings": "Finding Severity",
    "core.sse": "SSEEvent SSEParser parse_sse parse_sse_async",
    "core.timing": "TimingFacts timing_facts",
    "known": "KnownDeviation",
    "marking": "apply_known",
    "messages.accumulate": "MessageAccumulator",
    "responses.accumulate": "ResponseAccumulator",
    "streams": "StreamValidator validate_stream validate_stream_async",
    "watching": "ProtocolViolation Watched watch watch_async",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Imports a name of `__all__` at its first use. Raises AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
