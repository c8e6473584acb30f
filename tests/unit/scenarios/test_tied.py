"""Defects that a turn is said to show: known where they show, told where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import DefectsError, load_defects
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._protocol import Exchange
from vllm_harness._scenarios import tied
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.reading import read_scenario, stories_of_package
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.running import transports_of

ACME = {
    "acme-1": Defect.model_validate(
        {"id": "acme-1", "title": "It is late", "class": "defect", "versions": "<0.33", "pattern": "too late"}
    )
}
LATE, OTHER = TurnMismatch("text[0]", "a text", "too late"), TurnMismatch("text[0]", "a text", "nothing")


def scenario(defect: str = "acme-1") -> Scenario:
    """A turn that shows a defect over Chat Completions."""
    turn: dict[str, Any] = {"name": "ask", "user": "Hi", "say": "Hello."}
    known = [{"defect": defect, "over": ["chat"]}]
    return Scenario.model_validate({"scenario": 1, "turns": [{**turn, "known": known}]})


def marked(
    *mismatches: TurnMismatch, over: str = "chat", version: str = "0.32.0", scripted: bool = True
) -> TurnResult:
    """The turn's result after what is known was marked."""
    entry = load_models().get("qwen3")
    served = Served(Endpoint("http://127.0.0.1:9"), "qwen3", entry, version, scripted)
    result = TurnResult("ask", mismatches=list(mismatches), exchange=Exchange())
    (transport,) = transports_of([over], (False,))
    tied.mark(scenario(), served, [Conversation(transport, [result])], ACME)
    return result


def test_what_the_defect_explains_is_known() -> None:
    result = marked(LATE)
    assert (result.state, result.tied) == ("known", ("acme-1",))
    assert [each.known for each in result.mismatches] == ["acme-1"]


def test_what_is_wrong_beside_it_is_not() -> None:
    result = marked(LATE, OTHER)
    assert result.state == "failed"
    assert [each.known for each in result.mismatches] == ["acme-1", ""]


@pytest.mark.parametrize("beside", [(), (OTHER,)])
def test_a_defect_that_is_gone_is_told(beside: tuple[TurnMismatch, ...]) -> None:
    result = marked(*beside)
    assert result.state == "failed"
    assert [each.code for each in result.findings] == ["KD101"]
    assert "acme-1 (not reported) no longer occurs on 0.32.0" in str(result.findings[0])


def test_a_real_model_need_not_show_it() -> None:
    assert marked(scripted=False).state == "passed"
    assert marked(LATE, scripted=False).state == "known"


@pytest.mark.parametrize("elsewhere", [{"over": "messages"}, {"version": "0.33.0"}])
def test_other_transports_and_versions_do_not_show_it(elsewhere: dict[str, str]) -> None:
    assert marked(**elsewhere).state == "passed"
    assert marked(LATE, **elsewhere).state == "failed"


def test_an_unknown_defect_is_told_with_the_nearest() -> None:
    with pytest.raises(DefectsError, match="'acme-2'") as caught:
        tied.named(scenario("acme-2"), ACME)
    assert "acme-1" in str(caught.value)


def test_the_stories_name_defects_that_there_are() -> None:
    for path in stories_of_package():
        tied.named(read_scenario(path), load_defects())
