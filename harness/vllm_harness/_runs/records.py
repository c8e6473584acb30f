"""What a run keeps, one record a line, so that nothing is lost. Times are seconds since the epoch.

A line is a JSON object whose first key is `type`; a key that is missing has its default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from vllm_harness._protocol.core.findings import Finding

FORMAT = 1


class Record(BaseModel):
    """A record; what a later harness adds is left aside when it is read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Kind(StrEnum):
    """What kind of run it is."""

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
    """What became of a case.

    `known`: it failed as a defect of the registry says, and in no other way; a case that passed may have
    known findings too, where what it is about is right.
    """

    PASSED = "passed"
    KNOWN = "known"
    FINDING = "finding"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class Header(Record):
    """The first record.

    Attributes:
        format: number of this format.
        kind: of the run.
        name: what people call it.
        command: the command line, secrets redacted.
        harness: version of the harness.
        machine: cores, memory and GPUs in a sentence.
        seed: of what is drawn.
        started: when.
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
    """What a run asks: a server of a model entry, or a family's parsers in their interpreter.

    A later record of the same id takes the place of an earlier one, as where a server was started again.

    Attributes:
        id: unique in the run; cases name it.
        title: for people: a model, a family.
        family, lane: as in the model entries; empty where there is none.
        vllm: version of vLLM, as short as it tells versions apart (`0.32.0`, `0.33.0@0.32.0`).
        environment: in full.
        frontend: of the server.
        device: cpu, or the GPU's name.
        command: of the server.
        logs: paths of its log files.
        startup_s: seconds until it was ready.
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
    """A deviation that a case showed.

    Attributes:
        code: of the rule; empty for a mismatch or an assertion.
        severity: error, warning or info.
        message: one sentence.
        exchange: id of the exchange in which it is; empty where there is none.
        event_index: index of the event from 0.
        path: JSON path within the event or the body.
        expected, actual: as text.
        known: id of the defect that it belongs to.
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
        """A finding of the validator, in an exchange of this id."""
        kept = {name: getattr(finding, name) for name in cls.model_fields if name != "exchange"}
        return cls(**{**kept, "severity": str(finding.severity)}, exchange=exchange)

    @property
    def counts(self) -> bool:
        """Whether it is an error or a warning that nobody has declared known."""
        return self.severity != "info" and not self.known

    @property
    def text(self) -> str:
        """In one line: code, severity, path, message, expected and actual."""
        place = " ".join(filter(None, (self.code, self.severity, self.path)))
        texts = (("expected", self.expected), ("actual", self.actual))
        sides = ", ".join(f"{name} {text}" for name, text in texts if text)
        known = f" [known: {self.known}]" if self.known else ""
        return f"{place}: {self.message}{f' ({sides})' if sides else ''}{known}"


class CaseRecord(Record):
    """One case on one target, once it has ended.

    Attributes:
        id: unique among the cases of its target: a test's id, a parser's case and delivery, a turn.
        target: id of the target.
        group: what the matrix has a column for: a test module, a group of cases.
        title: for people, where the id does not say it.
        covers: ids of behaviours.
        outcome: what became of it.
        defects: ids of the known defects that were seen.
        reason: of a skip, a cancellation, a failure: in one line.
        details: the failure whole, as text.
        findings: what was found.
        started, seconds: when, and how long.
        attempts: how often it was tried.
        node: of a cluster, where it ran.
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
    """A token, or several that only make text together.

    Attributes:
        ids: of the tokens.
        text: what they say.
    """

    ids: tuple[int, ...]
    text: str


class GenerationRecord(Record):
    """What the model was given and generated at one time within a request.

    Attributes:
        choice: index of the choice, where there are several.
        prompt, output: the tokens.
    """

    choice: int = 0
    prompt: tuple[Piece, ...] = ()
    output: tuple[Piece, ...] = ()


class Arrival(Record):
    """A piece of a streamed answer.

    Attributes:
        after: seconds since the request was sent.
        text: what came, as it came.
    """

    after: float
    text: str


class ExchangeRecord(Record):
    """A request and its answer, secrets redacted.

    Attributes:
        id: unique in the run.
        target, case: whose it is; the case is empty where no case made it.
        api: responses, chat, messages; empty for another route.
        method, path: of the request.
        at: when it was sent.
        headers, request: what was sent.
        status: of the answer; None where none came.
        answer_headers: of the answer.
        answer: the body of an answer that is no stream.
        stream: the pieces of a stream, in the order in which they came.
        seconds: until the answer was whole.
        prompt, output: the tokens that the model got and gave, where they are known.
        further: where a request has several choices, or the server generates again after a call of its own
            tool: the generations after the first.
        twin: id of the exchange that asks the same the other way (streamed or not).
        error: why there is no answer.
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
    """What a server's log said while a case ran."""

    type: Literal["log"] = "log"
    target: str
    case: str
    source: str = ""
    lines: tuple[str, ...]


class Series(Record):
    """Figures of a run: a time series, or a distribution.

    Attributes:
        target: id of the target.
        name: what is measured, such as `time to first token`.
        unit: of the values.
        points: pairs; time series: seconds since the start, value; distribution: percentile, value.
        form: what the pairs are.
    """

    type: Literal["series"] = "series"
    target: str = ""
    name: str
    unit: str
    form: Literal["time", "percentiles"]
    points: tuple[tuple[float, float], ...]


class End(Record):
    """The last record of a run that came to its end.

    Attributes:
        at: when.
        exit_code: of the command.
        stopped: why it ended before its time: a signal, an error; empty where it did not.
    """

    type: Literal["end"] = "end"
    at: float
    exit_code: int
    stopped: str = ""


AnyRecord = Annotated[
    Header | TargetRecord | CaseRecord | ExchangeRecord | LogLines | Series | End, Field(discriminator="type")
]
RECORD: TypeAdapter[AnyRecord] = TypeAdapter(AnyRecord)
