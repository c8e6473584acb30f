"""The error that the validator raises for input that it cannot read."""

from __future__ import annotations

from vllm_harness._errors import UsageError


class ProtocolInputError(UsageError):
    """Input cannot be read, such as an event above the size limit or a capture that is not valid JSON.

    Args:
        message: what is wrong, in one or two sentences.
        source: the file or stream of the input; empty if there is none.
        line: the line in the source, counted from 1; 0 if there is none.
        hint: what to try.
    """

    def __init__(self, message: str, *, source: str = "", line: int = 0, hint: str = "") -> None:
        place = f"{source}:{line}" if source and line else source
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.source = source
        self.line = line
