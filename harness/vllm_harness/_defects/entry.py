"""The format of a registry entry: one root cause in vLLM or in a gateway."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Literal

import jmespath
from pydantic import ConfigDict, Field, field_validator, model_validator

from vllm_harness._exchange.delivery import DeliveryField
from vllm_harness._files.strict import Pattern, StrictModel
from vllm_harness._protocol.known import KnownDeviation, RuleCode, Versions, holds

DefectClass = Literal["defect", "deviation", "feature gap", "arguable"]
Severity = Literal["wrong data", "lost data", "broken output", "error", "delay", "contract"]
"""From silent data corruption, the most severe, to differences from the contract."""
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
        reference: an issue or a pull request, such as `vllm#46940`; None if the defect is not reported. A
            judged entry without a reference must say how a report was searched for.
        state: the state of the issue or pull request.
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
        text: one sentence that describes it.
        source: the section of the contract, or of the family's published format, that requires it.
    """

    text: str
    source: str


class ShownFinding(_Entry):
    """A validator finding that shows a defect.

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
    """Parser regression failures that show a defect.

    Attributes:
        families: the families that fail.
        case: the smallest test case that shows the defect, from the first of `groups`.
        groups: the groups of test cases; by default all but `forced`.
        cases, deliveries, mismatches: selections of the failures; by default all. Cases are shell patterns
            for names; in the group `forced`, `call` selects `call, named` and `call, required`. A delivery
            in process also matches the corresponding one over HTTP.
        says: a regular expression for the model's text, in generated test cases; if empty, any text matches.
        served: whether the defect shows only on servers, not in process.
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
    """A request of a reproduction, and the model's scripted answer.

    Attributes:
        path: the path, such as `/v1/chat/completions`; in it and in the body, braces contain a JMESPath over
            the answers so far, such as `{steps[0].body.id}`.
        method: the HTTP method.
        headers: headers in addition to those of a JSON request.
        body: the JSON body; the name of the model is added.
        content: the body as text, in place of `body`; `{model}` stands for the name of the model.
        say: what the model says in each generation, as in a rule of a script book: a string, a mapping with
            `raw`, or a mapping with `text`, `reasoning` and `calls`.
        delivery: the chunks of a streamed answer, such as `tokens_1`; see `Delivery`.
        hang_up_after: the number of stream events after which the client disconnects.
        until: a JMESPath condition on the answer; the request is repeated until it holds, at most `limit_s`.
        meanwhile: whether the next step is sent without waiting for this answer, which is read at the end.
        limit_s: the timeout for the whole answer in seconds; if it expires, `broken` says so.
    """

    path: str
    method: Literal["POST", "GET", "DELETE"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] | None = None
    content: str | None = None
    say: tuple[str | dict[str, Any], ...] = ()
    delivery: DeliveryField | None = None
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

    The conditions `expected` and `actual` are JMESPath over the last answer: HTTP `status` and `headers`
    (names in lower case), `body` (JSON), `events` (of a stream, as JSON), `stream` (the body that the events
    add up to), `text` (a body that is not JSON), `broken` (how the answer broke off), `unscripted` (true if
    the model did not follow its script), and `steps`, the answers to all requests in order.

    Attributes:
        model: the model entry, on the scripted lane.
        family: a family of parsers, whose stand-in is served in place of a model entry.
        frontend: vLLM's HTTP front end that answers.
        args, env: `vllm serve` flags and environment variables in addition to those of the model entry.
        steps: the requests in order.
        expected: a condition that holds if vLLM behaves correctly.
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
    """One root cause in vLLM or in a gateway.

    Attributes:
        id: the id: `vllm-46940` if it is reported, otherwise a short name; also the name of its file.
        product: the package name of the affected gateway, to which `versions`, `component` and `upstream`
            then refer; `deviations` are then findings of `vllm-harness gateway check`. Empty for vLLM.
        title: one sentence that says what goes wrong.
        kind: `class` in the file. `defect`: violates vLLM's own contract, or loses or changes data;
            `deviation`: deviates from OpenAI's or Anthropic's contract; `feature gap`: a missing feature;
            `arguable`: the contract is unclear.
        severity: the effect on a client: wrong data without a sign, lost data, output that cannot be parsed,
            an error, a delay (also for other clients), or a difference from the contract. None if it follows
            from the mismatches of `failures`.
        component: files and functions of vLLM, as `path: function`.
        apis, frontends: the APIs and the front ends that show it.
        models: the model entries that show it; by default all.
        parser: vLLM's name for the parser, if the defect is in a single parser.
        like: the name of a file in `common`, next to the folder of entries, with text for several entries,
            if many parsers have the same fault for different reasons; `{parser}` stands for the parser.
        versions: the versions that show it, as a PEP 440 specifier; if empty, all versions.
        upstream: the upstream report of the defect.
        request: the smallest request that shows it.
        says: what the model says: raw text, or a meaning.
        delivery: how the tokens must arrive, if that matters.
        expected, actual: the correct behaviour, and what happens instead.
        pattern: a regular expression for the test failures that the defect causes, which is matched against
            the type and the message of the exception: `AssertionError: ...`.
        scripts: `used` if a test that shows it must have used all its scripts; `any` if it need not have.
        deviations: the validator findings that show it.
        failures: the parser regression failures that show it.
        in_process: whether it shows only in process, as no server can be made to send the necessary deltas.
        repro: how to reproduce it with one command.
        evidence: what was seen and where, or the lines of vLLM's source.
        judged: the day on which it was checked against the contract and vLLM's source; None if it was not.
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
        """Lists the validator findings that show it on a server of this version and model entry."""
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
