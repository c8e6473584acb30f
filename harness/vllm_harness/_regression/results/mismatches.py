"""Codes for the differences between expected and actual answers, each with a description for reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator


class MismatchCode(StrEnum):
    """What differs; the value is stored in files, and does not change between versions.

    Attributes:
        words: a description of the difference.
    """

    words: str

    def __new__(cls, value: str, words: str = "") -> MismatchCode:
        member = str.__new__(cls, value)
        member._value_ = value
        member.words = words
        return member

    REASONING_LOST = "reasoning_lost", "the reasoning is lost"
    REASONING_CUT = "reasoning_cut", "the reasoning is truncated"
    REASONING_DIFFERS = "reasoning_differs", "the reasoning differs"
    REASONING_UNEXPECTED = "reasoning_unexpected", "reasoning where none is expected"
    TEXT_LOST = "text_lost", "the text is lost"
    TEXT_CUT = "text_cut", "the text is truncated"
    TEXT_DIFFERS = "text_differs", "the text differs"
    TEXT_UNEXPECTED = "text_unexpected", "text where none is expected"
    CALL_LOST = "call_lost", "a call is lost"
    CALL_EXTRA = "call_extra", "more calls than expected"
    CALL_FORBIDDEN = "call_forbidden", "a call although the request allows none"
    CALL_UNNAMED = "call_unnamed", "a call without a name"
    CALL_INDEX_DIFFERS = "call_index_differs", "the calls are not numbered from 0"
    CALL_ID_REPEATED = "call_id_repeated", "two calls have the same id"
    CALL_ID_DIFFERS = "call_id_differs", "the id of a call is not the one in the text"
    FUNCTION_DIFFERS = "function_differs", "the name of another function"
    ARGUMENTS_NOT_JSON = "arguments_not_json", "the arguments are not valid JSON"
    ARGUMENTS_NOT_OBJECT = "arguments_not_object", "the arguments are not a JSON object"
    ARGUMENTS_DIFFER = "arguments_differ", "the arguments differ"
    ARGUMENTS_NOT_STREAMED = "arguments_not_streamed", "long arguments arrive at once, not streamed"
    ANSWER_EMPTY = "answer_empty", "an empty answer"
    WORDS_LOST = "words_lost", "words of the text are lost, and the answer has no calls"
    VALUES_LOST = "values_lost", "a value of the arguments or a text is lost, and the answer has calls"
    REASONING_TOKENS_NOT_COUNTED = "reasoning_tokens_not_counted", "the usage counts no reasoning tokens"
    REASONING_TOKENS_MISCOUNTED = (
        "reasoning_tokens_miscounted",
        "the usage counts another number of reasoning tokens",
    )
    GRAMMAR_NOT_ENFORCED = (
        "grammar_not_enforced",
        "no grammar keeps the model from generating what the request rules out",
    )
    TIME_SUPERLINEAR = "time_superlinear", "the time grows faster than the answer"
    TIME_SUPERQUADRATIC = "time_superquadratic", "the time grows faster than the square of the answer"
    MEMORY_SUPERLINEAR = "memory_superlinear", "the memory grows faster than the answer"
    LOOP_BLOCKED = "loop_blocked", "one step blocks the event loop, and with it all other requests"
    ERROR = "error", "an error"
    PARSERS_NOT_MADE = "parsers_not_made", "vLLM cannot make the parsers"


class How(StrEnum):
    """How a text, arguments or calls differ, if there is a single difference."""

    LOST = "lost"
    """Something is missing in one place."""
    REPEATED = "repeated"
    """Something is repeated."""
    REORDERED = "reordered"
    """The content is the same but in another order."""
    LEAKED = "leaked"
    """Something is added that belongs elsewhere or is markup."""


_WITH_HOW = (
    MismatchCode.REASONING_DIFFERS,
    MismatchCode.TEXT_DIFFERS,
    MismatchCode.ARGUMENTS_DIFFER,
    MismatchCode.FUNCTION_DIFFERS,
    MismatchCode.CALL_EXTRA,
)


@dataclass(frozen=True)
class Mismatch:
    """A difference between the expected and the actual answer.

    Attributes:
        code: what differs.
        detail: the error code if `code` is `ERROR`; for other codes, a `How` if known, or else empty.
    """

    code: MismatchCode
    detail: str = ""

    def __str__(self) -> str:
        """The stable string form, which `parse` reads: `call_lost`, `text_differs:lost`, `error:http_500`."""
        return f"{self.code}:{self.detail}" if self.detail else str(self.code)

    @classmethod
    def parse(cls, serial: str) -> Mismatch:
        """Parses the string form. Raises ValueError if the code is unknown or cannot have the detail."""
        code, _, detail = serial.partition(":")
        if code == MismatchCode.ERROR:
            valid = bool(detail)
        else:
            valid = not detail or (code in _WITH_HOW and detail in set(How))
        if not valid:
            raise ValueError(
                f"{serial!r} is not a mismatch: write error:CODE for an error; a code for what differs may "
                f"end in one of :{', :'.join(How)}"
            )
        return cls(MismatchCode(code), detail)

    def covers(self, other: Mismatch) -> bool:
        """Whether the other mismatch has the same code and, if this one has a detail, the same detail."""
        return self.code is other.code and self.detail in ("", other.detail)

    @property
    def title(self) -> str:
        """A description of the mismatch."""
        return f"{self.code.words}: {self.detail}" if self.detail else self.code.words


def _validated(value: Any) -> Mismatch:
    return value if isinstance(value, Mismatch) else Mismatch.parse(value)


MismatchField = Annotated[Mismatch, PlainValidator(_validated), PlainSerializer(str, return_type=str)]
"""A mismatch as the field of a pydantic model; in JSON and YAML it is the string form."""
