"""The records of a run folder, one per line; times are seconds since the epoch.

A line is a JSON object whose first key is `type`; a missing key means the default value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from vllm_harness._protocol.core.findings import Finding

FORMAT = 1


class Record(BaseModel):
    """A record; reading it ignores keys that a later version of the harness added."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Kind(StrEnum):
    """The kind of a run."""

    SUITES = "suites"
    REGRESSION = "regression"
    SCENARIO = "scenario"
    LOAD = "load"
    REPRO = "repro"
    UPSTREAM = "upstream"
    MUTANTS = "mutants"
    WEIGHTS = "weights"
    GATEWAY = "gateway"


class Outcome(StrEnum):
    """The outcome of a case (a test, a parser's test case, or a turn); `case_outcome` decides it.

    `known` means that known defects explain all problems of the case; it has neither passed nor failed.
    `not_judged` means that the harness could not bring about what the case tests.
    """

    PASSED = "passed"
    KNOWN = "known"
    FINDING = "finding"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    NOT_JUDGED = "not_judged"


class CaseProblem(Protocol):
    """A problem of a case: a failure, a mismatch, or a rule's finding."""

    @property
    def known(self) -> str:
        """The id of the known defect that explains the problem; empty if none does."""

    @property
    def counts(self) -> bool:
        """Whether the problem makes the case fail."""


def case_outcome(
    problems: Iterable[CaseProblem],
    *,
    defects: Collection[str] = (),
    cancelled: bool = False,
    skipped: bool = False,
    not_judged: bool = False,
) -> Outcome:
    """Decides the outcome of a case, for every kind of run and every report.

    Args:
        problems: the problems of the case.
        defects: ids of known defects that explain failures not listed in `problems`.
        cancelled: whether the case was stopped before its end.
        skipped: whether the case did not run.
        not_judged: whether the case ran, but without an answer that could be judged.
    """
    every = list(problems)
    if any(problem.counts for problem in every):
        return Outcome.FINDING
    if cancelled:
        return Outcome.CANCELLED
    if defects or any(problem.known for problem in every):
        return Outcome.KNOWN
    if not_judged:
        return Outcome.NOT_JUDGED
    return Outcome.SKIPPED if skipped else Outcome.PASSED


class Header(Record):
    """The first record of a run.

    Attributes:
        format: the version of this format.
        kind: the kind of run.
        name: a name for people.
        command: the command line, with secrets redacted.
        harness: the version of the harness.
        machine: the cores, memory and GPUs of the machine, in one line.
        seed: the random seed.
        started: the start time.
    """

    type: Literal["header"] = "header"
    format: int = FORMAT
    kind: Kind
    name: str = ""
    command: tuple[str, ...] = ()
    harness: str = ""
    machine: str = ""
    seed: int | None = None
    started: float


class TargetRecord(Record):
    """What a run tests: a server of a model entry, or the parsers of a family in an interpreter.

    A later record replaces an earlier one with the same id, for instance after a server was restarted.

    Attributes:
        id: the id, unique in the run; cases refer to it.
        title: a human-readable name: that of a model or a family.
        family, lane: as in the model entries; empty if the target has none.
        vllm: the short form of the vLLM version (`0.32.0`, `0.33.0@0.32.0`).
        environment: a full description of the environment.
        frontend: the front end of the server.
        device: `cpu`, or the GPU's name.
        command: the command line of the server.
        logs: the paths of the server's log files.
        startup_s: the seconds until the server was ready.
    """

    type: Literal["target"] = "target"
    id: str
    title: str
    family: str = ""
    lane: str = ""
    vllm: str = ""
    environment: str = ""
    frontend: str = ""
    device: str = ""
    command: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    startup_s: float | None = None


class RunFinding(Record):
    """A problem that a case showed: a rule's finding, a mismatch, or a failed assertion.

    Attributes:
        code: the code of the rule; empty for a mismatch or an assertion.
        severity: error, warning or info.
        message: a sentence that describes the problem.
        exchange: the id of the exchange that shows it; empty if there is none.
        event_index: the index of the event, counted from 0.
        path: the JSON path within the event or the body.
        expected, actual: the expected and the actual value, as text.
        known: the id of the known defect that explains it; empty if none does.
    """

    code: str = ""
    severity: str = "error"
    message: str
    exchange: str = ""
    event_index: int | None = None
    path: str = ""
    expected: str = ""
    actual: str = ""
    known: str = ""

    @classmethod
    def of(cls, finding: Finding, exchange: str = "") -> RunFinding:
        """Makes the record of a finding that the validator made in an exchange."""
        kept = {name: getattr(finding, name) for name in cls.model_fields if name != "exchange"}
        return cls(**{**kept, "severity": str(finding.severity)}, exchange=exchange)

    @property
    def counts(self) -> bool:
        """Whether this is an error or warning that no known defect explains."""
        return self.severity != "info" and not self.known

    @property
    def text(self) -> str:
        """The finding in one line: code, severity, path, message, and expected and actual values."""
        place = " ".join(filter(None, (self.code, self.severity, self.path)))
        texts = (("expected", self.expected), ("actual", self.actual))
        sides = ", ".join(f"{name} {text}" for name, text in texts if text)
        known = f" [known: {self.known}]" if self.known else ""
        return f"{place}: {self.message}{f' ({sides})' if sides else ''}{known}"


class CaseRecord(Record):
    """A finished case on a target.

    Attributes:
        id: the id of the test, parser test case or turn; unique among the cases of the target.
        target: the id of the target.
        group: the column of the matrix: a test module, a group of cases.
        title: a human-readable name, if the id is not clear enough.
        covers: the ids of the behaviours that the case covers.
        outcome: the outcome of the case.
        defects: the ids of all known defects that it showed, even if the case does not test for them.
        reason: the reason for a skip, a cancellation or a failure, in one line.
        details: the whole text of a failure.
        findings: the problems that it showed.
        started, seconds: the start time and the duration in seconds.
        attempts: the number of attempts.
        node: the cluster node that ran it.
    """

    type: Literal["case"] = "case"
    id: str
    target: str
    group: str = ""
    title: str = ""
    covers: tuple[str, ...] = ()
    outcome: Outcome
    defects: tuple[str, ...] = ()
    reason: str = ""
    details: str = ""
    findings: tuple[RunFinding, ...] = ()
    started: float | None = None
    seconds: float | None = None
    attempts: int = 1
    node: str = ""


class Piece(Record):
    """A token, or several tokens that only together decode to text.

    Attributes:
        ids: the ids of the tokens.
        text: the text that they decode to.
    """

    ids: tuple[int, ...]
    text: str


class GenerationRecord(Record):
    """A prompt for the model and the tokens that it generated, as part of a request.

    Attributes:
        choice: the index of the choice.
        prompt, output: the tokens of the prompt and of the generated text.
    """

    choice: int = 0
    prompt: tuple[Piece, ...] = ()
    output: tuple[Piece, ...] = ()


class Arrival(Record):
    """A chunk of a streamed answer.

    Attributes:
        after: the seconds since the request was sent.
        text: the text of the chunk.
    """

    after: float
    text: str


class ExchangeRecord(Record):
    """A request and the answer to it, with secrets redacted.

    Attributes:
        id: the id, unique in the run.
        target, case: the ids of the target and the case; `case` is empty if no case made the request.
        api: `responses`, `chat` or `messages`; empty for any other route.
        method, path: the method and the path of the request.
        at: the time when the request was sent.
        headers, request: the headers and the body of the request.
        status: the HTTP status of the answer; None if no answer came.
        answer_headers: the headers of the answer.
        answer: the body of an answer that is not streamed.
        stream: the chunks of a stream, in order.
        seconds: the seconds until the end of the answer.
        prompt, output: the tokens of the prompt and of the answer, if they are known.
        further: the generations after the first, if a request has several choices or calls that the server
            answers itself.
        twin: the id of the exchange that sent the same request with `stream` inverted.
        error: the reason why there is no complete answer.
    """

    type: Literal["exchange"] = "exchange"
    id: str
    target: str = ""
    case: str = ""
    api: str = ""
    method: str = "POST"
    path: str = ""
    at: float
    headers: dict[str, str] = Field(default_factory=dict)
    request: JsonValue = None
    status: int | None = None
    answer_headers: dict[str, str] = Field(default_factory=dict)
    answer: JsonValue = None
    stream: tuple[Arrival, ...] = ()
    seconds: float | None = None
    prompt: tuple[Piece, ...] = ()
    output: tuple[Piece, ...] = ()
    further: tuple[GenerationRecord, ...] = ()
    twin: str = ""
    error: str = ""


class LogLines(Record):
    """The lines of a server's log while a case ran."""

    type: Literal["log"] = "log"
    target: str
    case: str
    source: str = ""
    lines: tuple[str, ...]


class Series(Record):
    """A time series or a distribution that a run measured.

    Attributes:
        target: the id of the target.
        name: the name of the figure, such as `time to first token`.
        unit: the unit of the values.
        points: pairs of a time (seconds since the start) or a percentile, and a value.
        form: whether the pairs contain times or percentiles.
    """

    type: Literal["series"] = "series"
    target: str = ""
    name: str
    unit: str
    form: Literal["time", "percentiles"]
    points: tuple[tuple[float, float], ...]


class End(Record):
    """The last record of a run that was not killed.

    Attributes:
        at: the end time.
        exit_code: the exit code of the command.
        stopped: the signal or error that stopped the run early; empty if nothing did.
    """

    type: Literal["end"] = "end"
    at: float
    exit_code: int
    stopped: str = ""


AnyRecord = Annotated[
    Header | TargetRecord | CaseRecord | ExchangeRecord | LogLines | Series | End, Field(discriminator="type")
]
RECORD: TypeAdapter[AnyRecord] = TypeAdapter(AnyRecord)
