"""The protocol: coded findings over streams and bodies of the Responses API, Chat Completions and
Anthropic Messages.

Pure functions over events; imports nothing of the rest of the harness but its errors.
"""

from vllm_harness.protocol.accumulate import ChatAccumulator, MessageAccumulator, ResponseAccumulator
from vllm_harness.protocol.bodies import validate_body
from vllm_harness.protocol.compare import compare_responses, compare_stream
from vllm_harness.protocol.conversation import Exchange, validate_conversation
from vllm_harness.protocol.errors import ProtocolInputError
from vllm_harness.protocol.findings import Finding, Severity
from vllm_harness.protocol.known import KnownDeviation, apply_known
from vllm_harness.protocol.sse import SSEEvent, SSEParser, parse_sse, parse_sse_async
from vllm_harness.protocol.stream import StreamValidator, validate_stream, validate_stream_async
from vllm_harness.protocol.timing import TimingFacts, timing_facts
from vllm_harness.protocol.watch import ProtocolViolation, Watched, watch, watch_async

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
