"""The codes of what can differ between the expected and the actual answer, and their titles for reading."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator


class MismatchCode(StrEnum):
    """What differs; the value is stored, and stays the same from version to version."""

    REASONING_LOST = "reasoning_lost"
    REASONING_CUT = "reasoning_cut"
    REASONING_DIFFERS = "reasoning_differs"
    REASONING_UNEXPECTED = "reasoning_unexpected"
    TEXT_LOST = "text_lost"
    TEXT_CUT = "text_cut"
    TEXT_DIFFERS = "text_differs"
    TEXT_UNEXPECTED = "text_unexpected"
    CALL_LOST = "call_lost"
    CALL_EXTRA = "call_extra"
    CALL_FORBIDDEN = "call_forbidden"
    CALL_UNNAMED = "call_unnamed"
    CALL_INDEX_DIFFERS = "call_index_differs"
    CALL_ID_REPEATED = "call_id_repeated"
    CALL_ID_DIFFERS = "call_id_differs"
    FUNCTION_DIFFERS = "function_differs"
    ARGUMENTS_NOT_JSON = "arguments_not_json"
    ARGUMENTS_NOT_OBJECT = "arguments_not_object"
    ARGUMENTS_DIFFER = "arguments_differ"
    ARGUMENTS_NOT_STREAMED = "arguments_not_streamed"
    ANSWER_EMPTY = "answer_empty"
    WORDS_LOST = "words_lost"
    VALUES_LOST = "values_lost"
    REASONING_TOKENS_NOT_COUNTED = "reasoning_tokens_not_counted"
    REASONING_TOKENS_MISCOUNTED = "reasoning_tokens_miscounted"
    GRAMMAR_NOT_ENFORCED = "grammar_not_enforced"
    TIME_SUPERLINEAR = "time_superlinear"
    TIME_SUPERQUADRATIC = "time_superquadratic"
    MEMORY_SUPERLINEAR = "memory_superlinear"
    LOOP_BLOCKED = "loop_blocked"
    ERROR = "error"
    PARSERS_NOT_MADE = "parsers_not_made"


class How(StrEnum):
    """How a text, arguments or calls differ, where that is one thing."""

    LOST = "lost"
    """Less, in one place."""
    REPEATED = "repeated"
    """More, and what is more has been said already."""
    REORDERED = "reordered"
    """The same in another order."""
    LEAKED = "leaked"
    """More, and what is more belongs elsewhere or is markup."""


_WITH_HOW = (
    MismatchCode.REASONING_DIFFERS,
    MismatchCode.TEXT_DIFFERS,
    MismatchCode.ARGUMENTS_DIFFER,
    MismatchCode.FUNCTION_DIFFERS,
    MismatchCode.CALL_EXTRA,
)
TITLES: dict[MismatchCode, str] = {
    MismatchCode.REASONING_LOST: "the reasoning is lost",
    MismatchCode.REASONING_CUT: "the reasoning is cut",
    MismatchCode.REASONING_DIFFERS: "the reasoning differs",
    MismatchCode.REASONING_UNEXPECTED: "reasoning where none is expected",
    MismatchCode.TEXT_LOST: "the text is lost",
    MismatchCode.TEXT_CUT: "the text is cut",
    MismatchCode.TEXT_DIFFERS: "the text differs",
    MismatchCode.TEXT_UNEXPECTED: "text where none is expected",
    MismatchCode.CALL_LOST: "a call is lost",
    MismatchCode.CALL_EXTRA: "more calls than expected",
    MismatchCode.CALL_FORBIDDEN: "a call where the request allows none",
    MismatchCode.CALL_UNNAMED: "a call without a name",
    MismatchCode.CALL_INDEX_DIFFERS: "the calls are not numbered from 0 on",
    MismatchCode.CALL_ID_REPEATED: "two calls have the same id",
    MismatchCode.CALL_ID_DIFFERS: "a call has another id than the text gives it",
    MismatchCode.FUNCTION_DIFFERS: "the name of another function",
    MismatchCode.ARGUMENTS_NOT_JSON: "the arguments are no JSON",
    MismatchCode.ARGUMENTS_NOT_OBJECT: "the arguments are no object",
    MismatchCode.ARGUMENTS_DIFFER: "the arguments differ",
    MismatchCode.ARGUMENTS_NOT_STREAMED: "long arguments arrive at once, not streamed",
    MismatchCode.ANSWER_EMPTY: "an empty answer",
    MismatchCode.WORDS_LOST: "words of the text are lost, and the answer has no calls",
    MismatchCode.VALUES_LOST: "a value of the arguments or a text is lost, and the answer has calls",
    MismatchCode.REASONING_TOKENS_NOT_COUNTED: "the usage counts no tokens of reasoning",
    MismatchCode.REASONING_TOKENS_MISCOUNTED: "the usage counts another number of tokens of reasoning",
    MismatchCode.GRAMMAR_NOT_ENFORCED: "no grammar keeps the model from what the request rules out",
    MismatchCode.TIME_SUPERLINEAR: "the time grows faster than the answer",
    MismatchCode.TIME_SUPERQUADRATIC: "the time grows faster than the square of the answer",
    MismatchCode.MEMORY_SUPERLINEAR: "the memory grows faster than the answer",
    MismatchCode.LOOP_BLOCKED: "one step blocks the event loop, and with it all other requests",
    MismatchCode.ERROR: "an error",
    MismatchCode.PARSERS_NOT_MADE: "vLLM cannot make the parsers",
}


@dataclass(frozen=True)
class Mismatch:
    """A difference between the expected and the actual answer.

    Attributes:
        code: what differs.
        detail: the code of the error, where `code` is `ERROR`; of other codes how it differs, as `How`, where
            that is known.
    """

    code: MismatchCode
    detail: str = ""

    def __str__(self) -> str:
        """Its stable serial form, which `parse` reads: `call_lost`, `text_differs:lost`, `error:http_500`."""
        return f"{self.code}:{self.detail}" if self.detail else str(self.code)

    @classmethod
    def parse(cls, serial: str) -> Mismatch:
        """The mismatch of a serial form.

        Raises:
            ValueError: there is no such code, or no such detail of it.
        """
        code, _, detail = serial.partition(":")
        if code == MismatchCode.ERROR:
            fits = bool(detail)
        else:
            fits = not detail or (code in _WITH_HOW and detail in set(How))
        if not fits:
            raise ValueError(
                f"{serial!r} is no mismatch; an error has its code after a colon, and what differs may have "
                f"one of {', '.join(How)}"
            )
        return cls(MismatchCode(code), detail)

    def covers(self, other: Mismatch) -> bool:
        """Whether the other is the same, or the same with a detail that this leaves open."""
        return self.code is other.code and self.detail in ("", other.detail)

    @property
    def title(self) -> str:
        """It in words, for reading."""
        return f"{TITLES[self.code]}: {self.detail}" if self.detail else TITLES[self.code]


def _validated(value: Any) -> Mismatch:
    return value if isinstance(value, Mismatch) else Mismatch.parse(value)


MismatchField = Annotated[Mismatch, PlainValidator(_validated), PlainSerializer(str, return_type=str)]
"""A mismatch in a pydantic model: its serial form in JSON and YAML."""
