"""The verdict of a review, as it is written to JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.engines.answer import CaseCall

FORMAT = 1
PartName = Literal["in-process", "http", "tests"]
"""The parts of a review, in the order in which they run."""


class ReviewVerdict(StrEnum):
    """What a review says of a change, the worst first."""

    REGRESSED = "regressed"
    NOT_JUDGED = "could not be judged"
    FIXED = "fixed"
    UNCHANGED = "unchanged"
    NOTHING = "nothing to judge"


class Part(StrictModel):
    """A part of a review: parsers in process, parsers over HTTP, or tests.

    Attributes:
        name: the name of the part.
        judged: the number of cases that ran before and after the change.
        fixed, regressed: the numbers of cases that became right or wrong.
        accepted: the number of regressed cases that the file of accepted regressions lists.
        flaky: the cases that were wrong once, and right when they ran again by themselves.
        otherwise: the cases that are as wrong as before, by the same codes, but have other answers.
        seconds: the duration of the part.
    """

    name: str
    judged: int = 0
    fixed: int = 0
    regressed: int = 0
    accepted: int = 0
    flaky: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def unchanged(self) -> int:
        """The number of cases that neither regressed nor were fixed, and have the same answers."""
        return self.judged - self.fixed - self.regressed - self.accepted - len(self.otherwise)


class Named(StrictModel):
    """Something that did not run or could not be judged, and the reason."""

    what: str
    reason: str


class Step(StrictModel):
    """A chunk of the model's text, and what a parser sends for it."""

    text: str
    reasoning: str = ""
    content: str = ""
    calls: tuple[CaseCall, ...] = ()


class Message(StrictModel):
    """The content of an answer, or of what was expected.

    Attributes:
        reasoning, content: the texts.
        calls: the name and the arguments of each call.
        rule: what was expected if there is no single right answer.
        error: the error that came instead of an answer.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str | None, str], ...] = ()
    rule: str = ""
    error: str = ""


class Parting(StrictModel):
    """Where an answer parts from what was expected.

    Attributes:
        where: `reasoning`, `text`, `calls`, `call 0: name` or `call 0: arguments`.
        common: the end of the text that both share.
        expected, actual: how each goes on; empty where it ends.
        chunk: the number, from 1 on, of the first chunk after which the answer cannot become right any more.
    """

    where: str
    common: str = ""
    expected: str = ""
    actual: str = ""
    chunk: int | None = None


class ShownFailure(StrictModel):
    """A test case that regressed, so that a reader can see what is wrong without anything else.

    Attributes:
        family, group, case, delivery: what ran; for tests, the file, the target and the name of the test.
        standard: where the expected answer comes from: `the meaning` of the text, or `the first delivery`.
        mismatch: the code of the worst mismatch, and `title` its description.
        severity: how bad it is for a client.
        text: what the model writes.
        steps: the chunks in which it arrives, and what vLLM sends for each; empty if it is not streamed.
        expected, actual: what should have come, and what came.
        parting: where they part; None if there is no single right answer.
        command: the command that shows the failure again.
    """

    family: str
    group: str
    case: str
    delivery: str
    mismatch: str
    title: str
    severity: str = ""
    standard: str = ""
    text: str = ""
    steps: tuple[Step, ...] = ()
    expected: Message = Message()
    actual: Message = Message()
    parting: Parting | None = None
    command: str = ""


class FailureKind(StrictModel):
    """Cases that regressed in the same way.

    Attributes:
        mismatch: the code of their worst mismatch, and `title` its description.
        severity: how bad it is for a client.
        cases: family -> the number of its cases.
        example: the smallest of the cases.
    """

    mismatch: str
    title: str
    severity: str
    cases: dict[str, int]
    example: ShownFailure


class Cause(StrictModel):
    """Failures that share a cause: the changed files that their parsers or tests run.

    Attributes:
        files: the changed files.
        kinds: the kinds of failures, the worst first.
    """

    files: tuple[str, ...]
    kinds: tuple[FailureKind, ...]

    @property
    def cases(self) -> int:
        """The number of cases that regressed."""
        return sum(sum(kind.cases.values()) for kind in self.kinds)


class DefectTurn(StrictModel):
    """A known defect whose failures changed: `regressed`, `fixed` or `fixed in part`."""

    id: str
    title: str
    turn: str
    families: tuple[str, ...]
    before: int
    gone: int
    new: int


class Review(StrictModel):
    """The result of `vllm-harness review`.

    Attributes:
        format: the version of this format.
        verdict: the one verdict, and `exit_code` the exit code that goes with it.
        base, head: the code before and after the change.
        files: the changed files that can change an answer.
        other_files: the number of the other changed files, which no answer depends on.
        parts: the parts that ran.
        causes: what regressed, grouped by cause.
        defects: the known defects whose failures changed.
        accepted: the regressions that were accepted, each with the reason.
        not_run: what did not run.
        not_judged: what could not be judged.
        seconds: the duration.
        run: the folder with all results.
    """

    format: int = FORMAT
    verdict: ReviewVerdict
    exit_code: int
    base: str
    head: str
    files: tuple[str, ...] = ()
    other_files: int = 0
    parts: tuple[Part, ...] = ()
    causes: tuple[Cause, ...] = ()
    defects: tuple[DefectTurn, ...] = ()
    accepted: tuple[Named, ...] = ()
    not_run: tuple[Named, ...] = ()
    not_judged: tuple[Named, ...] = ()
    seconds: float = 0.0
    run: str = ""

    def total(self, count: str) -> int:
        """The sum of a number over all parts."""
        return sum(getattr(part, count) for part in self.parts)

    @property
    def flaky(self) -> tuple[str, ...]:
        """The flaky cases of all parts."""
        return tuple(case for part in self.parts for case in part.flaky)

    @property
    def otherwise(self) -> tuple[str, ...]:
        """The cases of all parts that are wrong as before, with other answers."""
        return tuple(case for part in self.parts for case in part.otherwise)


def verdict_of(parts: tuple[Part, ...], not_judged: tuple[Named, ...]) -> tuple[ReviewVerdict, int]:
    """Returns the verdict and the exit code."""
    if any(part.regressed for part in parts):
        return ReviewVerdict.REGRESSED, 1
    if not_judged:
        return ReviewVerdict.NOT_JUDGED, 3
    fixed = any(part.fixed for part in parts)
    return (ReviewVerdict.FIXED if fixed else ReviewVerdict.UNCHANGED), 0
