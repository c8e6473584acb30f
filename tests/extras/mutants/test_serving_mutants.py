"""Mutants of vLLM's serving code: each fits the release, and servers really run the changed code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.extras.mutants.conftest import VLLM
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.mutants.importers import all_importers, direct_importers, importers_of
from vllm_harness.extras.mutants.judge import Judge, JudgedMutant, MutantTrial
from vllm_harness.extras.mutants.measure import measure, texts_of
from vllm_harness.extras.mutants.mutant import HandMutant, ServingMutant, applied, load_by_hand
from vllm_harness.extras.mutants.parsers.mutants import module_of
from vllm_harness.extras.mutants.suites import Suites
from vllm_harness.extras.review.coverage import Coverage, TestLines

SERVING = "entrypoints/openai/responses/serving.py"
TESTS = ("tests/behaviours/test_responses_basics.py",)
PLANTED = load_by_hand(Path(__file__).with_name("planted"))
"""Faults in the code below the serving code, from which the package's mutants are made."""


def test_each_mutant_fits_the_release_once(package: Path) -> None:
    mutants = {mutant.id: applied(mutant, package) for mutant in (*load_by_hand(), *PLANTED)}
    assert [id_ for id_, mutant in mutants.items() if mutant is None] == []
    codes = [mutant.code for mutant in mutants.values() if mutant]
    assert len(set(codes)) == len(codes)


def test_texts_of_tests_are_their_code_and_case() -> None:
    file = "tests/behaviours/test_sampling.py"
    texts = texts_of(Suites(VLLM, ("qwen3",), (file,)))
    told = f"{file}::test_parameters_reach_the_engine[scripted-qwen3-responses-body]"
    assert "def test_parameters_reach_the_engine(" in texts[told]
    assert "'min_p': 0.05" in texts[told]
    assert "vocab_size" not in texts[told]  # all tests have the same target


@pytest.fixture(scope="module")
def coverage(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Coverage:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    measured = measure(package, Suites(VLLM, ("qwen3",), TESTS), path, quiet)
    assert len(measured) == len(path.read_text().splitlines()) > 4
    return measured


@pytest.mark.vllm_slow
@pytest.mark.timeout(900)
def test_lines_belong_to_the_requests_of_each_test(package: Path, coverage: Coverage) -> None:
    line = next(
        number
        for number, text in enumerate((package / SERVING).read_text().splitlines(), 1)
        if "async def retrieve_responses" in text
    )
    retrieving = {test.function for test in coverage.running(SERVING, (line + 1, line + 30))}
    assert f"{TESTS[0]}::test_store_and_retrieve" in retrieving
    assert f"{TESTS[0]}::test_plain_answer" not in retrieving


@pytest.mark.vllm_slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("sequence_number = 0\n", "sequence_number =  0\n", "survived"),
        ("Cannot cancel a synchronous response.", "No.", "unreached"),
        ("        return response\n\n    def _topk", "        raise KeyError\n\n    def _topk", "killed"),
        ("import asyncio\n", "import asyncio\nimport no_such_module\n", "killed"),
    ],
    ids=["unchanged", "not run", "broken", "not importable"],
)
def test_a_server_runs_the_mutant(
    package: Path, coverage: Coverage, tmp_path: Path, old: str, new: str, status: str
) -> None:
    importers = importers_of(package, tmp_path / "importers.json")
    judge = Judge(Suites(VLLM, ("qwen3",), TESTS), coverage, importers, most=2)
    assert judge.trial(_mutant(package, old, new)).judge().status == status


CAUGHT = [mutant for mutant in (*load_by_hand(), *PLANTED) if mutant.caught_by]


@pytest.mark.vllm_slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", CAUGHT, ids=[mutant.id for mutant in CAUGHT])
def test_the_named_test_kills_it(package: Path, mutant: HandMutant) -> None:
    changed = applied(mutant, package)
    assert changed is not None
    result = _judged(package, changed, [mutant])
    assert (result.status, result.by) == ("killed", mutant.caught_by), result.why


@pytest.mark.vllm_slow
@pytest.mark.timeout(900)
def test_the_named_tests_pass_without(package: Path) -> None:
    unchanged = _mutant(package, "sequence_number = 0\n", "sequence_number =  0\n")
    result = _judged(package, unchanged, CAUGHT)
    assert (result.status, result.ran) == (
        "survived",
        len({mutant.caught_by for mutant in CAUGHT}),
    ), result.why


def _judged(package: Path, changed: ServingMutant, named: Sequence[HandMutant]) -> JudgedMutant:
    """Judges a mutant by running the tests that are known to catch the given mutants."""
    ids = dict.fromkeys(mutant.caught_by or "" for mutant in named)
    tests = [TestLines(test=id_, target=_target(id_), outcome="passed", seconds=0, lines={}) for id_ in ids]
    importers = all_importers(module_of(changed.file), direct_importers(package))
    suites = Suites(VLLM, (), TESTS)
    return MutantTrial(changed, tuple(tests), len(tests), tuple(importers), suites).judge()


def _target(test: str) -> str:
    """The lane and model in a test id; further parameters may follow them."""
    return next(target for target in ("scripted-qwen3", "scripted-gpt-oss") if f"[{target}" in test)


def _mutant(package: Path, old: str, new: str) -> ServingMutant:
    mutant = applied(HandMutant(id="m", file=SERVING, old=old, new=new, what="it"), package)
    assert mutant is not None
    return mutant
