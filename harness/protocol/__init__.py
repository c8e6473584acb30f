"""The protocol: coded findings over streams and bodies of the Responses API and Chat Completions.

Pure functions over events; imports nothing of the rest of the harness but its errors.
"""

from harness.protocol.bodies import validate_body
from harness.protocol.errors import ProtocolInputError
from harness.protocol.findings import Finding, Severity
from harness.protocol.sse import SSEEvent, SSEParser, parse_sse, parse_sse_async
from harness.protocol.stream import (
    ProtocolViolation,
    StreamValidator,
    validate_stream,
    validate_stream_async,
)

__all__ = [
    "Finding",
    "ProtocolInputError",
    "ProtocolViolation",
    "SSEEvent",
    "SSEParser",
    "Severity",
    "StreamValidator",
    "parse_sse",
    "parse_sse_async",
    "validate_body",
    "validate_stream",
    "validate_stream_async",
]
