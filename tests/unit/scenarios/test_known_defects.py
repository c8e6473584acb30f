"""Known defects that a turn names: they explain problems, and lead to findings if they no longer show."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scenarios.servers import DescribedServer
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import DefectsError, load_defects
from vllm_harness._protocol import Exchange
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.known_defects import mark, named_defects
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.reading import read_scenario, stories_of_package
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.running import transports_of

ACME = {
    "acme-1": Defect.model_validate(
        {"id": "acme-1", "title": "It is late", "class": "defect", "versions": "<0.33", "pattern": "too late"}
    )
}
QWEN3 = DescribedServer(load_models().get("qwen3"))
LATE, OTHER = TurnMismatch("text[0]", "a text", "too late"), TurnMismatch("text[0]", "a text", "nothing")


def scenario(defect: str = "acme-1") -> Scenario:
    """Makes a scenario with one turn that names a defect over Chat Completions."""
    turn: dict[str, Any] = {"name": "ask", "user": "Hi", "say": "Hello."}
    known = [{"defect": defect, "over": ["chat"]}]
    return Scenario.model_validate({"scenario": 1, "turns": [{**turn, "known": known}]})


def marked(
    *mismatches: TurnMismatch, over: str = "chat", version: str = "0.32.0", scripted: bool = True
) -> TurnResult:
    """Makes a result of the turn, and marks the mismatches that the defect explains."""
    story = scenario()
    defects = named_defects(story, ACME, DescribedServer(QWEN3.entry, version=version))
    result = TurnResult("ask", mismatches=list(mismatches), exchange=Exchange())
    (transport,) = transports_of([over], (False,))
    missing_on = version if scripted else ""
    mark(story, [Conversation(transport, [result])], defects, missing_on=missing_on)
    return result


def test_a_problem_that_the_defect_explains_is_known() -> None:
    result = marked(LATE)
    assert (result.state, result.known) == ("known", {"acme-1"})
    assert [each.known for each in result.mismatches] == ["acme-1"]


def test_another_problem_fails_the_turn() -> None:
    result = marked(LATE, OTHER)
    assert result.state == "failed"
    assert [each.known for each in result.mismatches] == ["acme-1", ""]


@pytest.mark.parametrize("beside", [(), (OTHER,)])
def test_a_defect_that_no_longer_shows_is_a_finding(beside: tuple[TurnMismatch, ...]) -> None:
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


def test_an_unknown_defect_is_an_error_with_the_nearest() -> None:
    with pytest.raises(DefectsError, match="'acme-2'") as caught:
        named_defects(scenario("acme-2"), ACME, QWEN3)
    assert "acme-1" in str(caught.value)


def test_the_stories_name_defects_of_the_registry() -> None:
    for path in stories_of_package():
        named_defects(read_scenario(path), load_defects(), QWEN3)
