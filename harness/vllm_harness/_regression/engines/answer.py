"""vLLM's answer to one case in one delivery, the same for every engine."""

from __future__ import annotations

from enum import StrEnum

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.delivery import DeliveryField


class ErrorCode(StrEnum):
    """The codes of errors that are neither an exception's class name nor `http_` and a status."""

    GRAMMAR_REFUSED = "grammar_refused"
    """The request's grammar refused the text."""
    GRAMMAR_NOT_MADE = "grammar_not_made"
    ERROR_EVENT = "error_event"
    """A stream ended with an error event."""
    BROKEN_OFF = "ChunkedEncodingError"
    """The connection ended before the answer; stored results have this name."""
    NO_ANSWER = "ConnectionError"
    NOT_JSON = "JSONDecodeError"


class AnswerError(StrictModel):
    """An error in place of an answer; its code is an `ErrorCode`, `http_400` or the name of an exception."""

    code: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class CaseCall(StrictModel):
    """A call as a client gets it, with its chunks joined.

    Attributes:
        id: the id from the model's text, or the one that the server generates.
        chunks: the number of chunks with a part of its arguments, if they were counted.
        index: its index in a stream.
    """

    name: str | None
    arguments: str
    id: str | None = None
    chunks: int | None = None
    index: int | None = None


class CostPoint(StrictModel):
    """The cost of an answer at one length.

    Attributes:
        size: the number of tokens of the answer, or the number of tools if these grow.
        cpu_s: the CPU time of the whole answer.
        longest_s: the CPU time of the longest step, which nothing can interrupt.
        peak_bytes: the peak of allocated memory, if it was measured.
    """

    size: int
    cpu_s: float
    longest_s: float
    peak_bytes: int | None = None


class Curve(StrictModel):
    """The cost of an answer at growing lengths.

    Attributes:
        points: the costs, the shortest length first.
        stopped_at: the size of the answer that exceeded the deadline, which ended the curve.
    """

    points: tuple[CostPoint, ...] = ()
    stopped_at: int | None = None


class CaseAnswer(StrictModel):
    """The answer to one case.

    Attributes:
        family, case, delivery: what is answered; `case` is None if vLLM could not make the parsers.
        case_set: the index of the case set among those that the engine was given.
        at: the number of tokens after which the text was truncated, or the number of the division of a
            delivery that stands for several.
        tokens: the number of tokens of the text.
        alternative: the text, if it is one of the case's alternatives.
        reasoning, content, calls: the message.
        counted_reasoning: the number of reasoning tokens that the usage counts, if it does.
        reasoning_tokens: the number of tokens of the returned reasoning, if they were counted.
        curve: the cost at growing lengths, if it was measured instead of the answer.
        error: the error in place of an answer.
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
    error: AnswerError | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the request's grammar refused the text."""
        return self.error is not None and self.error.code == ErrorCode.GRAMMAR_REFUSED
