"""The cases of a gateway check, as data."""

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
    """What the user says, and what the model answers.

    Attributes:
        name: the name of the case.
        user, system: the text of the user's message and the system prompt.
        say: what the model answers, as in a script book.
        then: what it answers to the second request, which sends the tools' results or follows `continues`.
        tools: the names of the tools that are offered.
        results: the output of each tool, by name.
        continues: `previous_response_id`: the second request refers to the first answer by its id.
        needs: the capabilities that the model must have.
        apis: the APIs to use.
        streamed: whether to stream; by default the case runs both ways.
        schema_: the JSON Schema of the answer; in the file, the key is `schema`.
        constrained: whether a grammar constrains the model.
        expect: the state in which the script ends.
        broken: the fields that make the server refuse the request; None for a request that it answers.
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
    """A case over one API, streamed or not."""

    case: GatewayCase
    api: Api
    streamed: bool

    @property
    def name(self) -> str:
        """The name, such as `chat/loop/streamed`."""
        return "/".join([self.api, self.case.name, *(["streamed"] if self.streamed else [])])


@cache
def load_cases(path: Path = CASES) -> tuple[GatewayCase, ...]:
    """Reads the cases of a file.

    Raises:
        UsageError: the file is invalid; the message names file, line and key.
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
    """The cases over each API, streamed and not, in the order of the file.

    Args:
        apis: the APIs that the server offers.
        capabilities: the capabilities of the model entry.
        only: shell patterns of names, such as `chat/*/streamed`; empty for all cases.
        scripted: whether the server is scripted; if not, cases that need a script are left out.
        cases: the cases; by default the package's.
    """
    for case in load_cases() if cases is None else cases:
        if not set(case.needs) <= set(capabilities) or (case.leaves and not scripted):
            continue
        for api in case.apis:
            for streamed in case.streamed if api in apis else ():
                variant = CaseVariant(case, api, streamed)
                if not only or any(fnmatchcase(variant.name, pattern) for pattern in only):
                    yield variant
