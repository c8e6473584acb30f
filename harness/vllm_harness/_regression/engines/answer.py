"""vLLM's answer to one case in one delivery, in the same form for every engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.strict import StrictModel


class ErrorCode(StrEnum):
    """Error codes; other errors have the name of an exception class, or `http_` and a status, as the code."""

    GRAMMAR_REFUSED = "grammar_refused"
    """The request's grammar refused the text."""
    GRAMMAR_NOT_MADE = "grammar_not_made"
    ERROR_EVENT = "error_event"
    """A stream ended with an error event."""
    BROKEN_OFF = "ChunkedEncodingError"
    """The connection ended before the answer did; the value keeps the name used in stored results."""
    NO_ANSWER = "ConnectionError"
    NOT_HELD = "delivery_not_held"
    """vLLM merged tokens, so the answer did not arrive in its delivery, and cannot be judged."""
    NOT_JSON = "JSONDecodeError"
    NOT_DRIVEN = "NotDriven"
    """The script in vLLM's interpreter cannot call vLLM's parsers."""


class AnswerError(StrictModel):
    """An error instead of an answer; `code` is an `ErrorCode`, `http_STATUS` or an exception's name."""

    code: str
    message: str = ""
    place: str = ""  # the file and line of vLLM that raised it, if known

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class CaseCall(StrictModel):
    """A call as a client receives it, with its chunks joined.

    Attributes:
        id: the id in the model's text, or the id that the server generates.
        chunks: the number of chunks that contain a part of the arguments, if counted.
        index: the index of the call in a stream.
    """

    name: str | None
    arguments: str
    id: str | None = None
    chunks: int | None = None
    index: int | None = None


class CostPoint(StrictModel):
    """The cost of parsing an answer of one length.

    Attributes:
        size: the number of tokens in the answer, or the number of tools if the tools grow instead.
        cpu_s: the CPU time for the whole answer.
        longest_s: the CPU time for the longest step, which cannot be interrupted.
        peak_bytes: the peak memory allocation, if measured.
    """

    size: int
    cpu_s: float
    longest_s: float
    peak_bytes: int | None = None


class Curve(StrictModel):
    """The cost of parsing an answer at growing lengths.

    Attributes:
        points: the costs, ordered from the shortest to the longest answer.
        stopped_at: the size of the answer at which measuring stopped because it exceeded the deadline.
    """

    points: tuple[CostPoint, ...] = ()
    stopped_at: int | None = None


class CaseAnswer(StrictModel):
    """The answer to one case.

    Attributes:
        family, case, delivery: identify what ran; `case` is None if vLLM could not make the parsers.
        case_set: the index of the case set in the sequence passed to the engine.
        at: the number of tokens after which the text was truncated; or the number of the division, if the
            delivery stands for several divisions into chunks.
        tokens: the number of tokens in the text.
        alternative: the text that was used, if it is one of the case's alternatives.
        reasoning, content, calls: the content of the message.
        counted_reasoning: the number of reasoning tokens in the usage, if reported.
        reasoning_tokens: the number of tokens in the returned reasoning, if counted.
        curve: the cost at growing lengths, if the case measures cost instead of content.
        steps: the text of each chunk, and what the parser sends for it, if they were asked for.
        error: the error, if there is no answer.
    """

    family: str
    case_set: int = 0
    case: str | None = None
    delivery: DeliveryField | None = None
    at: int | None = None
    tokens: int = 0
    alternative: str | None = None
    reasoning: str | None = None
    content: str | None = None
    calls: tuple[CaseCall, ...] = ()
    counted_reasoning: int | None = None
    reasoning_tokens: int | None = None
    curve: Curve | None = None
    steps: tuple[dict[str, Any], ...] = ()
    error: AnswerError | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the request's grammar refused the text."""
        return self.error is not None and self.error.code == ErrorCode.GRAMMAR_REFUSED

    @property
    def is_not_held(self) -> bool:
        """Whether vLLM merged tokens, so that the answer cannot be judged in its delivery."""
        return self.error is not None and self.error.code == ErrorCode.NOT_HELD
