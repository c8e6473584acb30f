"""The format of an entry of the registry: one root cause in vLLM, or in a gateway."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Literal

import jmespath
from pydantic import ConfigDict, Field, field_validator, model_validator

from vllm_harness._files.strict import Pattern, StrictModel
from vllm_harness._protocol.known import KnownDeviation, RuleCode, Versions, holds

DefectClass = Literal["defect", "deviation", "feature gap", "arguable"]
Severity = Literal["wrong data", "lost data", "broken output", "error", "delay", "contract"]
"""From silent data corruption to differences from the contract."""
Frontend = Literal["python", "rust"]
DefectApi = Literal["responses", "chat", "messages", "other"]
ID = re.compile(r"[a-z0-9][a-z0-9.-]{2,79}")


def _condition(text: str) -> str:
    try:
        jmespath.compile(text)
    except jmespath.exceptions.JMESPathError as error:
        raise ValueError(f"not a valid JMESPath: {error}") from error
    return text


class _Entry(StrictModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class Upstream(_Entry):
    """The upstream report of the defect.

    Attributes:
        reference: an issue or a pull request, such as `vllm#46940`; None if it is not reported: a judged
            entry then says how this was searched for.
        state: the state of the reference.
        searched: the search queries over upstream's issues and pull requests.
        searched_on: the day of the search.
    """

    reference: str | None = None
    state: Literal["open", "closed", "merged"] | None = None
    searched: tuple[str, ...] = ()
    searched_on: date | None = None


class ExpectedBehaviour(_Entry):
    """The correct behaviour.

    Attributes:
        text: one sentence.
        source: the section of the contract, or of the family's published format, that requires it.
    """

    text: str
    source: str


class ShownFinding(_Entry):
    """A finding of the validator by which a defect shows.

    Attributes:
        code, path, expected, kind: as in `KnownDeviation`.
        models: the model entries that show this finding; by default those of the entry.
        versions: the versions that show this finding; by default those of the entry.
    """

    code: RuleCode
    path: str
    expected: str = ""
    kind: str = ""
    models: tuple[str, ...] = ()
    versions: Versions = ""


class FailureSelector(_Entry):
    """Failures of parser regression by which a defect shows.

    Attributes:
        families: the families that fail.
        case: the smallest test case that shows it, from the first of the groups.
        groups: the groups of test cases; by default all but `forced`.
        cases, deliveries, mismatches: which failures; by default all. Cases are shell patterns; those of the
            group `forced` stand without what the request forces. A delivery in process also matches the
            corresponding one over HTTP.
        says: a regular expression that the model's text must match, for generated test cases, whose names
            have no meaning; empty: any text.
        served: whether only servers show it.
    """

    families: tuple[str, ...] = Field(min_length=1)
    case: str
    groups: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    deliveries: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    says: Pattern = ""
    served: bool = False


class ReproStep(_Entry):
    """A request of a reproduction, and what the model answers.

    Attributes:
        path: the path, such as `/v1/chat/completions`; here and in the body, `{steps[0].body.id}` is a
            JMESPath over the answers so far.
        method: the HTTP method.
        headers: headers in addition to those of a JSON request.
        body: the JSON body; the name of the model is added.
        content: the body as text, in place of `body`; `{model}` stands for the name of the model.
        say: what the model says, as in a rule of a script book: a text, or a mapping with `raw`, or with
            `text`, `reasoning` and `calls`; a list if the server generates several times.
        hang_up_after: the number of events of the stream after which the client leaves.
        until: a JMESPath over the answer: the request is sent again until it holds, for at most `limit_s`.
        meanwhile: the next step is sent without waiting; the answer to this one is read after the last step.
        limit_s: the timeout of the whole answer in seconds; `broken` then says so.
    """

    path: str
    method: Literal["POST", "GET", "DELETE"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] | None = None
    content: str | None = None
    say: tuple[str | dict[str, Any], ...] = ()
    hang_up_after: int | None = Field(default=None, gt=0)
    until: str | None = None
    meanwhile: bool = False
    limit_s: float = Field(default=30.0, gt=0)

    @field_validator("until")
    @classmethod
    def _is_a_condition(cls, text: str | None) -> str | None:
        return None if text is None else _condition(text)


class Repro(_Entry):
    """How to reproduce a defect on a real server.

    The two conditions are JMESPath over the last answer: `status` and `headers` of HTTP (names in lower
    case), `body` (JSON), `events` (those of a stream, as JSON), `stream` (the body that the events add up
    to), `text` (a body that is not JSON), `broken` (how the answer broke off), `unscripted` (true if the
    model did not follow its script), and `steps`, the answers to all requests in order.

    Attributes:
        model: the model entry, on the scripted lane.
        family: a family of parsers, whose stand-in is served in place of a model entry.
        frontend: the front end that answers.
        args, env: flags of `vllm serve` and variables beyond those of the model entry.
        steps: the requests in order.
        expected: a condition that holds if vLLM is right.
        actual: a condition that holds if the defect shows.
    """

    model: str = ""
    family: str = ""
    frontend: Frontend = "python"
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    steps: tuple[ReproStep, ...] = Field(min_length=1)
    expected: str
    actual: str

    @field_validator("expected", "actual")
    @classmethod
    def _is_a_condition(cls, text: str) -> str:
        return _condition(text)

    @model_validator(mode="after")
    def _names_a_model(self) -> Repro:
        if bool(self.model) == bool(self.family):
            raise ValueError("give either a model or a family")
        return self


class Defect(_Entry):
    """One root cause.

    Attributes:
        id: `vllm-46940` if it is reported, else a short name; also the name of its file.
        product: the package name of the gateway that has it; empty for vLLM. `versions`, `component` and
            `upstream` are then those of the product, and `deviations` those of `vllm-harness gateway check`.
        title: one sentence that says what goes wrong.
        kind: `class` in the file. `defect`: against vLLM's own contract, or data lost or changed;
            `deviation`: from OpenAI's or Anthropic's contract; `feature gap`: missing; `arguable`: the
            contract is open.
        severity: the effect on a client: wrong data without a sign, lost data, output that cannot be parsed,
            an error, a delay (also for other clients), or a difference from the contract. None: derived from
            the mismatches of `failures`.
        component: files and functions of vLLM, as `path: function`.
        apis, frontends: the APIs and the front ends that show it.
        models: the model entries that show it; by default all.
        parser: vLLM's name of the parser, if it is a defect of one parser.
        like: the name of the common text (`defects/common`) of an entry, if many parsers have the same fault
            for different reasons; `{parser}` in it stands for the parser.
        versions: the versions that show it, as in PEP 440; empty: all.
        upstream: its upstream report.
        request: the smallest request that shows it.
        says: what the model says: raw text, or a meaning.
        delivery: how the tokens must arrive, if that matters.
        expected, actual: the correct behaviour, and what happens instead.
        pattern: a regular expression that a failure by this defect matches: the type and the message of the
            exception, `AssertionError: ...`.
        scripts: `used`: a test that shows it has used all its scripts; `any`: it shows before that.
        deviations: the findings of the validator by which it shows.
        failures: the failures of parser regression by which it shows.
        in_process: whether only parsers driven in process show it: it needs a division of the tokens into
            deltas that no server makes on request.
        repro: how to reproduce it with one command.
        evidence: what was seen and where, or the lines of vLLM's source.
        judged: the day on which it was checked against the contract and vLLM's source; None: not yet.
    """

    model_config = ConfigDict(populate_by_name=True)

    id: str
    product: str = ""
    title: str
    kind: DefectClass = Field(alias="class")
    severity: Severity | None = None
    component: tuple[str, ...] = ()
    apis: tuple[DefectApi, ...] = ()
    frontends: tuple[Frontend, ...] = ("python",)
    models: tuple[str, ...] = ()
    parser: str = ""
    like: str = ""
    versions: Versions = ""
    upstream: Upstream = Upstream()
    request: dict[str, Any] | None = None
    says: Any = None
    delivery: str = ""
    expected: ExpectedBehaviour | None = None
    actual: str = ""
    pattern: Pattern = ""
    scripts: Literal["used", "any"] = "used"
    deviations: tuple[ShownFinding, ...] = ()
    failures: tuple[FailureSelector, ...] = ()
    in_process: bool = False
    repro: Repro | None = None
    evidence: str = ""
    judged: date | None = None

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, text: str) -> str:
        if not ID.fullmatch(text):
            raise ValueError("use lower-case letters, digits, dots and hyphens, such as vllm-46940")
        return text

    @model_validator(mode="after")
    def _says_how_it_searched(self) -> Defect:
        upstream = self.upstream
        if self.judged and not upstream.reference and not (upstream.searched and upstream.searched_on):
            raise ValueError("without a reference, say how upstream was searched: searched, searched_on")
        return self

    @property
    def families(self) -> tuple[str, ...]:
        """The families whose parsers show it."""
        return tuple(dict.fromkeys(family for selector in self.failures for family in selector.families))

    def holds_for(self, version: str, model: str = "") -> bool:
        """Whether a server of this version and this model entry shows it."""
        return (not model or not self.models or model in self.models) and holds(self.versions, version)

    def shown_by(self, raised: BaseException) -> bool:
        """Whether this defect explains a failure."""
        return re.search(self.pattern, f"{type(raised).__name__}: {raised}", re.DOTALL) is not None

    def known_deviations(self, version: str, model: str = "") -> tuple[KnownDeviation, ...]:
        """Lists the findings of the validator by which a server of this version and model entry shows it."""
        if not self.holds_for(version, model):
            return ()
        return tuple(
            KnownDeviation(
                code=place.code,
                path=place.path,
                expected=place.expected,
                kind=place.kind,
                reference=self.id,
                versions=place.versions or self.versions,
                note=self.title,
            )
            for place in self.deviations
            if (not model or not place.models or model in place.models) and holds(place.versions, version)
        )
