"""A defect of vLLM, or of a gateway before it: one root cause, as its file in the registry has it."""

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
"""From what nobody notices to what everybody sees."""
Frontend = Literal["python", "rust"]
DefectApi = Literal["responses", "chat", "messages", "other"]
ID = re.compile(r"[a-z0-9][a-z0-9.-]{2,79}")


def _condition(text: str) -> str:
    try:
        jmespath.compile(text)
    except jmespath.exceptions.JMESPathError as error:
        raise ValueError(f"no JMESPath: {error}") from error
    return text


class _Entry(StrictModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class Upstream(_Entry):
    """Where vLLM's project knows of it.

    Attributes:
        reference: issue or pull request, such as `vllm#46940`; none where it is not reported, which a
            judged entry says only with what was searched for.
        state: of the reference.
        searched: the queries put to upstream's issues and pull requests.
        searched_on: the day of the search.
    """

    reference: str | None = None
    state: Literal["open", "closed", "merged"] | None = None
    searched: tuple[str, ...] = ()
    searched_on: date | None = None


class ExpectedBehaviour(_Entry):
    """What is right.

    Attributes:
        text: one sentence.
        source: section of the contract, or of the family's published format, that says so.
    """

    text: str
    source: str


class ShownFinding(_Entry):
    """A finding of the validator by which a defect shows.

    Attributes:
        code, path, expected, kind: as of `KnownDeviation`.
        models: model entries that show it here; none: those of the entry.
        versions: versions that show it here; empty: those of the entry.
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
        families: whose failures they are.
        case: the smallest one that shows it, of the first of the groups.
        groups: of cases; none: all but `forced`.
        cases, deliveries, mismatches: which failures, cases by shell patterns, for those of the group forced
            without what the request forces; none: any. A delivery in process stands for the one that is like
            it over HTTP, too.
        says: regular expression that what the model says in a case must match, as of generated cases, whose
            names say nothing; empty: any.
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
    """A request of a reproduction, and what the model says to it.

    Attributes:
        path: such as `/v1/chat/completions`; here and in the body `{steps[0].body.id}` is a JMESPath over the
            answers so far.
        method: of HTTP.
        headers: beside those of a JSON request.
        body: JSON; the model's name is put in.
        content: the request's body as text, in place of `body`, with `{model}` for the model's name.
        say: what the model says, in the words of a script book's rule: a text, or a mapping with `raw`, or
            with `text`, `reasoning` and `calls`; several where the server generates several times.
        hang_up_after: so many events of the stream are read, then the client leaves.
        until: JMESPath over the answer: the request is sent again until it holds, for `limit_s` at most.
        meanwhile: the next step is sent at once; the answer to this one is read after the last.
        limit_s: seconds that the whole answer may take; where it does not end, that is in `broken`.
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
    """How to see a defect on a real server.

    The two conditions are JMESPath over the last answer: `status` and `headers` of HTTP (their names in
    lower case), `body` (JSON), `events` (of a stream, as JSON), `stream` (the body that the events add up
    to), `text` (where it is no JSON), `broken` (how it ended, where it did not end well), `unscripted` (where
    the model said something else than it was told to), and `steps`, the answers to all requests in order.

    Attributes:
        model: the model entry, on the scripted lane.
        family: of parsers, in place of a model entry: its stand-in is served.
        frontend: the one that answers.
        args, env: flags of `vllm serve` and variables beyond the entry's own.
        steps: the requests in order.
        expected: holds where vLLM is right.
        actual: holds where the defect shows.
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
            raise ValueError("name either a model or a family")
        return self


class Defect(_Entry):
    """One root cause.

    Attributes:
        id: `vllm-46940` where it is reported, else a short name; the name of its file.
        product: the gateway that has it, by the name of its package; empty for vLLM. `versions`, `component`
            and `upstream` are the product's then, and `deviations` those of `vllm-harness gateway check`.
        title: one sentence: what goes wrong.
        kind: `class` in the file. `defect`: wrong by vLLM's own contract, or data lost or changed;
            `deviation`: from OpenAI's or Anthropic's contract; `feature gap`: not there; `arguable`: the
            contract leaves it open.
        severity: what a client gets: other data than the model's, without a sign; less of it; what cannot be
            read; an error; a wait, also of other clients; or what the contract has otherwise. None: by the
            mismatches of `failures`.
        component: file and function of vLLM, `path: function`.
        apis, frontends: where it shows.
        models: model entries that show it; none: all.
        parser: vLLM's name of the parser, where it is one parser's.
        like: name of the common text (`defects/common`) that the entry is made from, where many parsers have
            the same fault for reasons of their own; `{parser}` in it is this entry's.
        versions: versions that show it, as in PEP 440; empty: all.
        upstream: where vLLM's project knows of it.
        request: the smallest request that shows it.
        says: what the model says: raw text, or a meaning.
        delivery: how the tokens have to arrive, where that matters.
        expected, actual: what is right, and what comes instead.
        pattern: regular expression that a failure must match to be this defect: the exception's type and
            message, `AssertionError: ...`.
        scripts: `used`: a test that shows it has used all its scripts; `any`: the defect comes before that.
        deviations: findings of the validator by which it shows.
        failures: those of parser regression by which it shows.
        in_process: whether only parsers driven in process show it: it takes a division of the tokens into
            deltas that no server makes at will.
        repro: how to see it with one command.
        evidence: what was seen, where, or the lines of vLLM's source.
        judged: the day it was judged by the contract and by vLLM's source; none: not yet.
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
            raise ValueError("an id is lower-case letters, digits, dots and hyphens, such as vllm-46940")
        return text

    @model_validator(mode="after")
    def _says_how_it_searched(self) -> Defect:
        upstream = self.upstream
        if self.judged and not upstream.reference and not (upstream.searched and upstream.searched_on):
            raise ValueError("without a reference it says how upstream was searched: searched, searched_on")
        return self

    @property
    def families(self) -> tuple[str, ...]:
        """The families whose parser shows it."""
        return tuple(dict.fromkeys(family for each in self.failures for family in each.families))

    def holds_for(self, version: str, model: str = "") -> bool:
        """Whether a server of this version, and of this model entry, shows it."""
        return (not model or not self.models or model in self.models) and holds(self.versions, version)

    def shown_by(self, raised: BaseException) -> bool:
        """Whether a failure is this defect."""
        return re.search(self.pattern, f"{type(raised).__name__}: {raised}", re.DOTALL) is not None

    def known_deviations(self, version: str, model: str = "") -> tuple[KnownDeviation, ...]:
        """The findings of the validator by which a server of this version and model entry shows it."""
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
