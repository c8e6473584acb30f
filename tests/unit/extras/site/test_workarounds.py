"""The site names a workaround for a defect only if measurements show that it works."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from tests.unit.extras.site.samples import cell, entry, failing, site
from vllm_harness._defects.repro.verdict import Verdict
from vllm_harness._regression.results.cells import Cell
from vllm_harness.extras.site.table import Column
from vllm_harness.extras.site.workarounds import of_servers

EVERYWHERE = {"whole": ("call_lost",), "tokens_1": ("call_lost",), "tokens_3": ("call_lost",)}


def workarounds(*cells: Cell, **changes: Any) -> list[str]:
    sample = site(*cells, **changes)
    defect = next(iter(sample.table.defects.values()))
    return [each.what for each in sample.around(defect, "hermes", Column("0.32.0"))]


def test_shows_only_in_steps_of_several_tokens() -> None:
    first, second = workarounds(failing())
    assert first == "do not stream"
    assert "speculative decoding" in second


def test_shows_only_if_not_streamed() -> None:
    assert workarounds(failing(mismatches={"whole": ("call_lost",)})) == ["stream the answer"]


def test_shows_only_with_stop_strings() -> None:
    (way,) = workarounds(failing(mismatches={"held_back": ("call_lost",)}))
    assert "`stop`" in way


def test_later_release_before_an_earlier_one() -> None:
    cells = [failing("0.32.0", EVERYWHERE), cell("0.31.0"), cell("0.33.0")]
    assert workarounds(*cells) == ["use vLLM 0.33.0"]
    assert workarounds(*cells[:2]) == ["use vLLM 0.31.0"]


def test_release_that_did_not_run_the_same_cases() -> None:
    (way,) = workarounds(failing("0.32.0", EVERYWHERE), cell("0.33.0", group="chunks"))
    assert "use vLLM" not in way


def test_release_without_the_parser() -> None:
    (way,) = workarounds(
        failing("0.32.0", EVERYWHERE), cell("0.33.0", start_error="no such parser", cases={})
    )
    assert "use vLLM" not in way


def test_other_front_end() -> None:
    rust = cell("0.32.0@0.31.0+rust", frontend="rust")
    assert workarounds(failing("0.32.0", EVERYWHERE), rust) == ["use the front end in Rust"]


def test_without_a_workaround_it_says_how_to_notice_the_defect() -> None:
    sample = site(failing("0.32.0", EVERYWHERE))
    defect = next(iter(sample.table.defects.values()))
    (way,) = sample.around(defect, "hermes", Column("0.32.0"))
    assert not way.avoids


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ({"0.31.0": "fixed", "0.32.0": "reproduced", "0.33.0": "fixed"}, ["use vLLM 0.33.0"]),
        ({"0.31.0": "fixed", "0.32.0": "reproduced"}, ["use vLLM 0.31.0"]),
        ({"0.22.0": "fixed", "0.32.0": "reproduced"}, []),
        ({"0.33.0": "not applicable", "0.32.0": "reproduced"}, []),
    ],
)
def test_servers_of_other_releases(verdicts: dict[str, Verdict], expected: list[str]) -> None:
    defect = entry(failures=[], severity="wrong data")
    found = of_servers(defect, "0.32.0", {Version(each): verdict for each, verdict in verdicts.items()})
    assert [each.what for each in found if each.avoids] == expected


def test_defect_of_one_api() -> None:
    found = of_servers(entry(failures=[], apis=["responses"]), "0.32.0", {})
    assert [each.what for each in found] == ["use Chat Completions"]


def test_defect_of_a_parser_does_not_suggest_another_api() -> None:
    found = of_servers(entry(apis=["responses"]), "0.32.0", {})
    assert "use Chat Completions" not in [each.what for each in found]
