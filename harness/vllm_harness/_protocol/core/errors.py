"""The error of the protocol package: input that is not what it claims to be."""

from __future__ import annotations

from vllm_harness._errors import UsageError


class ProtocolInputError(UsageError):
    """Input that cannot be read at all: an event above the limit, a capture that is not JSON, no events.

    Args:
        message: what happened, one or two sentences.
        source: file or stream the input came from; empty where there is none.
        line: line within the source, from 1; 0 where there is none.
        hint: what to try.
    """

    def __init__(self, message: str, *, source: str = "", line: int = 0, hint: str = "") -> None:
        place = f"{source}:{line}" if source and line else source
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.source = source
        self.line = line
