"""Runs third-party clients against a server that answers with the scripts for the client's test cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import Client, ClientFailedError, NotToBeHadError, clients
from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import BookRule, Script, ScriptBook
from vllm_harness._scripted.book_check import check_book
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._scripted.meaning import Meaning, Reasoning
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.skips import skip

CLIENTS = clients()
BOOKS = Path(__file__).with_name("books")
# the capabilities that a case needs besides tools
NEEDS = {"parallel": {"parallel_tools"}, "structured": {"structured_output"}, "stateful": {"store"}}
# the cases whose scripts are truncated
CUT = {"cut"}
MODES = 2  # bodies and streams


@dataclass(frozen=True)
class Seen:
    """A client's results in one case.

    Attributes:
        body, stream: the result in each mode, as printed by the client's program.
        tokens: the number of tokens in each script of the case, in order.
    """

    body: Any
    stream: Any
    tokens: list[int]


@dataclass
class Visit:
    """One run of a client's program against one server; the program runs all of the client's cases."""

    client: Client
    api: str
    server: RemoteServer
    scripts: dict[str, list[Script]] = field(default_factory=dict)

    @cached_property
    def outcome(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The program's output, and a report on each use of a script."""
        entry = self.server.entry
        book = ScriptBook(self.server.endpoint, entry)
        for case in self.client.cases[self.api]:  # type: ignore[index]
            if NEEDS.get(case, set()) <= entry.capabilities:
                rules = check_book(BOOKS / f"{case}.yaml").usable()
                self.scripts[case] = [book.add(_sayable(rule, entry)) for rule in rules]
        try:
            results = self.client.run(self.api, *self.scripts, environ=_environ(self.server, book))
        except ClientFailedError as error:
            results = {case: {"failed": str(error)} for case in self.scripts}
        uses = book.report()["uses"]
        book.close()
        return results, uses

    def case(self, name: str) -> Seen:
        """Returns the results of one case. Raises an error if it failed or its scripts were used wrongly."""
        results, uses = self.outcome
        if failure := results[name].get("failed"):
            raise ClientFailedError(failure)
        scripts = self.scripts[name]
        mine = [use for use in uses if use["script"] in {script.name for script in scripts}]
        assert Counter(use["script"] for use in mine) == {script.name: MODES for script in scripts}
        states = {generation["state"] for use in mine for generation in use["generations"]}
        assert states == {"running" if name in CUT else "done"}
        return Seen(**results[name], tokens=[len(script.takes[0]) for script in scripts])


See = Callable[[str, str, str], Seen]


@pytest.fixture(scope="session")
def _visits() -> dict[tuple[str, str, str], Visit]:
    return {}


@pytest.fixture
def see(vllm_server: VllmServer, _visits: dict[tuple[str, str, str], Visit]) -> See:
    """`see(client, api, case)` returns the results of a case; the client's program runs all cases at once."""
    assert isinstance(vllm_server, RemoteServer)

    def see(name: str, api: str, case: str) -> Seen:
        client = CLIENTS[name]
        try:
            client.make()
        except NotToBeHadError as error:
            skip("client-missing", error.message)
        key = vllm_server.url_for("/"), name, api
        return _visits.setdefault(key, Visit(client, api, vllm_server)).case(case)

    return see


def _sayable(rule: BookRule, entry: ModelEntry) -> BookRule:
    """Returns the rule; removes reasoning from its scripts if the model does not support reasoning."""
    if "reasoning" in entry.capabilities:
        return rule
    takes = [take for take in rule.takes if isinstance(take, Meaning)]
    parts = [tuple(part for part in take.parts if not isinstance(part, Reasoning)) for take in takes]
    return replace(rule, takes=tuple(map(Meaning, parts)))


def _environ(server: RemoteServer, book: ScriptBook) -> dict[str, str]:
    header = f"{BOOK_HEADER}: {book.name}"
    return {
        "MODEL": server.model,
        "OPENAI_BASE_URL": server.url_for("/v1"),
        "OPENAI_API_KEY": server.endpoint.api_key,
        "OPENAI_CUSTOM_HEADERS": header,
        "VLLM_BASE_URL": server.url_for("/v1"),
        "ANTHROPIC_BASE_URL": server.url_for("/"),
        "ANTHROPIC_API_KEY": server.endpoint.api_key,
        "ANTHROPIC_CUSTOM_HEADERS": header,
        "PYTHONPATH": "",
    }
