"""Checks the cassettes in tests/cassettes, from real servers: rules, accumulators and meanings."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT
from vllm_harness._cassettes.answers import ERROR, answer_of
from vllm_harness._cassettes.checking import check
from vllm_harness._cassettes.comparing import compare
from vllm_harness._cassettes.reading import read
from vllm_harness._cassettes.writing import dumped
from vllm_harness._files.redaction import Redactor
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness.cli.main import app

FOLDER = ROOT / "tests" / "cassettes"
FILES = sorted(FOLDER.glob("*.yaml.gz"))
SCRIPT = (ROOT / "ci" / "record.sh").read_text()
LINES = dict(re.findall(r"^record (\S+) (\S+)", SCRIPT, re.M))
by_name = pytest.mark.parametrize("path", FILES, ids=[path.name.removesuffix(".yaml.gz") for path in FILES])


def test_the_script_makes_each_and_all_are_small() -> None:
    assert {path.name.removesuffix(".yaml.gz") for path in FILES} == set(LINES)
    assert sum(path.stat().st_size for path in FILES) < 1_000_000


@by_name
def test_all_findings_are_known(path: Path) -> None:
    recording = read(path)
    wrong = {each.finding.code for each in check(recording) if each.finding.counts}
    assert wrong == set()


@by_name
def test_its_origin_names_no_local_folder(path: Path) -> None:
    cassette = read(path).cassette
    recorded = cassette.recorded
    assert all(
        (recorded.harness, recorded.at, recorded.model, recorded.vllm, recorded.command, recorded.device)
    )
    assert LINES[path.name.removesuffix(".yaml.gz")] == recorded.scenario
    assert not re.search(r"(?:^|[\s'\"=:])/(?:home|root|work|tmp|Users)/", dumped(cassette, Redactor()))


@by_name
def test_every_turn_means_what_the_script_said(path: Path) -> None:
    cassette = read(path).cassette
    story = read_scenario(find_scenario(cassette.recorded.scenario))
    turns = {turn.name: turn for turn in story.turns}
    assert [exchange.turn for exchange in cassette.exchanges] == list(turns)
    for exchange in cassette.exchanges:
        answer = answer_of(exchange)
        assert answer is not None
        expected = turns[exchange.turn].expect
        assert answer.status == expected.status
        if expected.calls is not None and exchange.response.status < ERROR:
            assert [call.name for call in answer.calls] == [call.name for call in expected.calls]


@pytest.mark.parametrize(("name", "lane"), [("etl-0.32", "scripted"), ("smollm2-forced", "live")])
def test_tokens_are_recorded(name: str, lane: str) -> None:
    cassette = read(FOLDER / f"{name}.yaml.gz").cassette
    assert cassette.recorded.lane == lane
    assert all(exchange.tokens for exchange in cassette.exchanges)


def test_the_docs_show_the_differences_between_versions() -> None:
    page = (ROOT / "docs" / "reference" / "measurements.md").read_text()
    names = [f"etl-0.{minor}.yaml.gz" for minor in (30, 31, 32, 33)]
    for left, right in pairwise(names):
        result = CliRunner().invoke(app, ["compare", str(FOLDER / left), str(FOLDER / right)])
        assert result.output.partition("\n\n")[2].strip() in page


def test_a_story_means_the_same_on_every_version() -> None:
    versions = [read(FOLDER / f"etl-0.{minor}.yaml.gz").cassette for minor in (30, 31, 32, 33)]
    for left, right in pairwise(versions):
        layers = {each.layer for each in compare(left, right)}
        assert layers <= {"protocol"}
