"""What a gateway is asked, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vllm_harness._configuration.model_entries import Capability
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel, keys_of
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._scripted.book import Expectation

CASES = Path(__file__).with_name("cases.yaml")
APIS: tuple[Api, ...] = ("chat", "responses", "messages")


class GatewayCase(StrictModel):
    """What is asked, and what the model answers.

    Attributes:
        name: within the file.
        user, system: what is said.
        say: what the model answers, as in a script book.
        then: what it answers the second time, after the tools' results or by `continues`.
        tools: names of the tools that are offered.
        results: what each tool answers.
        continues: `previous_response_id`: the second request names the first answer by its id.
        needs: capabilities that the model must have.
        apis: over which it goes.
        streamed: whole, as a stream, or both.
        schema_: written `schema`: JSON Schema of the answer.
        constrained: whether a grammar holds the model.
        expect: the state in which its script ends.
        broken: fields by which the server refuses the request; None for a request that it answers.
        leaves: whether the client leaves before the end.
        chat, responses, messages: further fields of the request over that API.
    """

    name: str
    user: str
    system: str = ""
    say: str | dict[str, Any] = ""
    then: str | dict[str, Any] | None = None
    tools: tuple[str, ...] = ()
    results: dict[str, str] = Field(default_factory=dict)
    continues: Literal["", "previous_response_id"] = ""
    needs: tuple[Capability, ...] = ()
    apis: tuple[Api, ...] = APIS
    streamed: tuple[bool, ...] = (False, True)
    schema_: Json | None = Field(None, alias="schema")
    constrained: bool = False
    expect: Expectation = "done"
    broken: Json | None = None
    leaves: bool = False
    chat: Json = Field(default_factory=dict)
    responses: Json = Field(default_factory=dict)
    messages: Json = Field(default_factory=dict)

    def more(self, api: Api) -> Json:
        """The further fields of the request over an API."""
        fields: Json = getattr(self, api)
        return fields


class _CasesFile(StrictModel):
    cases: tuple[GatewayCase, ...]


@dataclass(frozen=True)
class CaseVariant:
    """A case over one API, whole or as a stream."""

    case: GatewayCase
    api: Api
    streamed: bool

    @property
    def name(self) -> str:
        """Such as `chat/loop/streamed`."""
        return "/".join([self.api, self.case.name, *(["streamed"] if self.streamed else [])])


@cache
def load_cases(path: Path = CASES) -> tuple[GatewayCase, ...]:
    """The cases of a file.

    Raises:
        UsageError: naming file, line and key.
    """
    return read_yaml(path).validated(_CasesFile, keys_at=lambda where: keys_of(_CasesFile, where)).cases


def case_variants(
    apis: Collection[Api],
    capabilities: Collection[str],
    only: Collection[str] = (),
    *,
    scripted: bool = True,
    cases: Collection[GatewayCase] | None = None,
) -> Iterator[CaseVariant]:
    """All that a gateway is asked, in the order of the file.

    Args:
        apis: those that the server has.
        capabilities: of the model entry.
        only: shell patterns of names, such as `chat/*/streamed`; none: all.
        scripted: whether the model says what a case wants; else only what any model can be asked.
        cases: by default those of the package.
    """
    for case in load_cases() if cases is None else cases:
        if not set(case.needs) <= set(capabilities) or (case.leaves and not scripted):
            continue
        for api in case.apis:
            for streamed in case.streamed if api in apis else ():
                each = CaseVariant(case, api, streamed)
                if not only or any(fnmatchcase(each.name, pattern) for pattern in only):
                    yield each
