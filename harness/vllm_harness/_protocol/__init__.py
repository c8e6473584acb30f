"""The protocol: coded findings over streams and bodies of the Responses API, Chat Completions and
Anthropic Messages.

Pure functions over events. Nothing here imports the rest of the package, but for its base error. Rooms:

- `core`: what every API shares: findings, rules, reports, events, server-sent events, fields
- `responses`, `chat`, `messages`: one API each: objects (bodies), stream, rules, accumulate, render
- `conversation`: what holds between answers: exchanges, comparisons
- `gateway`: one answer as the server gave it, and as a gateway passed it on

The modules beside the rooms are the front doors, over all APIs: streams, bodies, captures, watch, assertions,
known (deviations), rules (all of them), samples, explain, formats.

Imports point one way: core <- responses, chat, messages <- conversation <- front doors.
"""

from vllm_harness._protocol.bodies import validate_body
from vllm_harness._protocol.chat.accumulate import ChatAccumulator
from vllm_harness._protocol.conversation.compare import compare_responses, compare_stream
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.conversation.exchanges import validate_conversation
from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.findings import Finding, Severity
from vllm_harness._protocol.core.sse import SSEEvent, SSEParser, parse_sse, parse_sse_async
from vllm_harness._protocol.core.timing import TimingFacts, timing_facts
from vllm_harness._protocol.known import KnownDeviation, apply_known
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
