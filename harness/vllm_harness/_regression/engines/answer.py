"""What came out of vLLM for one case in one delivery, whichever engine ran it."""

from __future__ import annotations

from enum import StrEnum

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.delivery import DeliveryField


class ErrorCode(StrEnum):
    """The codes of errors that are not the class name of an exception, nor `http_` and a status."""

    GRAMMAR_REFUSED = "grammar_refused"
    """A grammar of the request's kept the model from saying the text."""
    GRAMMAR_NOT_MADE = "grammar_not_made"
    ERROR_EVENT = "error_event"
    """A stream ended with an event of an error."""
    BROKEN_OFF = "ChunkedEncodingError"
    """The connection ended before the answer; the name that results have been stored by."""
    NO_ANSWER = "ConnectionError"
    NOT_JSON = "JSONDecodeError"


class AnswerError(StrictModel):
    """An error in place of an answer.

    Attributes:
        code: of `ErrorCode`, `http_400`, or an exception's class name.
        message: for reading.
    """

    code: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class CaseCall(StrictModel):
    """A call as a client gets it, chunks joined.

    Attributes:
        id: what the model calls it; without one, a server makes one up.
        chunks: how many chunks had a part of its arguments, where that was counted.
        index: its number in a stream.
    """

    name: str | None
    arguments: str
    id: str | None = None
    chunks: int | None = None
    index: int | None = None


class CostPoint(StrictModel):
    """What an answer takes at one length.

    Attributes:
        size: tokens of the answer; where the tools of the request are what grows, how many there are.
        cpu_s: CPU time of the whole answer.
        longest_s: of the longest step that nothing interrupts.
        peak_bytes: memory that was allocated at most, where that was measured.
    """

    size: int
    cpu_s: float
    longest_s: float
    peak_bytes: int | None = None


class Curve(StrictModel):
    """What an answer takes at rising lengths.

    Attributes:
        points: the shortest first.
        stopped_at: size of the answer that took longer than the deadline, which ended the curve.
    """

    points: tuple[CostPoint, ...] = ()
    stopped_at: int | None = None


class CaseAnswer(StrictModel):
    """The answer to one case.

    Attributes:
        family, case, delivery: whose; None: the family's parsers could not even be made.
        case_set: the position of its case set among those that were given.
        at: after how many tokens the text was truncated, or the number of the division that gave this.
        tokens: length of the text.
        alternative: the text, where it is not the case's first.
        reasoning, content, calls: the message.
        counted_reasoning: how many tokens of reasoning the usage counts, where it does.
        reasoning_tokens: how many tokens the reasoning has that came out, where that was counted.
        curve: what it takes at rising lengths, where that was measured in place of the answer.
        error: where one came instead.
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
        """Whether a grammar kept the model from saying the text."""
        return self.error is not None and self.error.code == ErrorCode.GRAMMAR_REFUSED
