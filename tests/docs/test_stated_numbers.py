"""The numbers in the manual are those in the code.

To have a number checked, add a row to STATED: the page, a pattern whose group is the number as written (in
digits or as a word), and a function that returns the number. A space in a pattern also matches a line break.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from tests.docs.blocks import PAGES, ROOT
from tests.docs.hook import generated_pages
from vllm_harness._cassettes.reading import MAX_BYTES
from vllm_harness._configuration.model_entries import Limits, load_models
from vllm_harness._regression.cases.groups import LOAD_CASES
from vllm_harness._regression.cases.malformed import load_malformed
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import DELIVERIES
from vllm_harness._scripted.families import load_families, load_families_file
from vllm_harness._server import records
from vllm_harness._server.fork_server import LINGER_S
from vllm_harness._server.leases import gpus, waiting
from vllm_harness._testing.repeats import TEMPERATURE
from vllm_harness.extras.cluster.dispatch import ATTEMPTS
from vllm_harness.extras.cluster.options import SILENCE_TIMEOUT_S
from vllm_harness.extras.costs import curves, growing, over_http
from vllm_harness.extras.gateways.check import AT_ONCE
from vllm_harness.extras.load.health import END_WITHIN_S
from vllm_harness.extras.mutants.mutant import load_by_hand
from vllm_harness.extras.review.choice import MOST
from vllm_harness.extras.upstream.faulty_answers import KINDS

WORDS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]
FAMILIES = "docs/how-to/parser-regression.md"


def _parsers(kind: str, *, without: bool = True) -> int:
    """The number of vLLM's parsers that have a family or, if `without` is set, a reason for having none."""
    families = [family for family in load_families().values() if kind != "tool" or not family.plugin]
    found = {getattr(family, f"{kind}_parser") for family in families} - {None}
    reasons = getattr(load_families_file().without_family, f"{kind}_parsers")
    return len(found) + (len(reasons) if without else 0)


@cache
def _project() -> dict[str, Any]:
    """The `project` table of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _extra(name: str) -> int:
    """The number of packages that an extra adds."""
    return len(list(_project()["optional-dependencies"][name]))


def _gpu_check(name: str) -> int:
    """The number that scripts/gpu-check assigns to a variable."""
    (found,) = re.findall(rf"^{name}=(\d+)", (ROOT / "scripts" / "gpu-check").read_text(), re.M)
    return int(found)


def _default_models() -> int:
    """The number of models that scripts/run uses by default."""
    (line,) = re.findall(r"\|\| set -- (.*)", (ROOT / "scripts" / "run").read_text())
    return str(line).count("--model ")


def _entries() -> int:
    return len(load_models().models)


def _named_tests() -> int:
    """The number of handmade mutants that name a test that must catch them."""
    return sum(mutant.caught_by is not None for mutant in load_by_hand())


def _newest_python() -> float:
    (minor,) = re.findall(r",<3\.(\d+)", _project()["requires-python"])
    return 3 + (int(minor) - 1) / 100


STATED: list[tuple[str, str, Callable[[], float]]] = [
    ("README.md", r"Python 3\.11 to (3\.\d+)", _newest_python),
    ("CONTRIBUTING.md", r"Python 3\.11 to (3\.\d+)", _newest_python),
    ("docs/index.md", r"Python 3\.11 to (3\.\d+)", _newest_python),
    ("docs/tutorials/laptop.md", r"Python 3\.11 to (3\.\d+)", _newest_python),
    ("docs/tutorials/gpu-runner.md", r"Python 3\.11 to (3\.\d+)", _newest_python),
    ("README.md", r"launches vLLM for (\w+) models", _default_models),
    ("docs/how-to/ci.md", r"# (\w+) models, the basic tests", _default_models),
    ("docs/index.md", r"generates (\w+) pages from the code", lambda: len(generated_pages("reference/"))),
    (FAMILIES, r"\((\d+) of \d+ and", lambda: _parsers("tool", without=False)),
    (FAMILIES, r"\(\d+ of (\d+) and", lambda: _parsers("tool")),
    (FAMILIES, r" and (\d+) of \d+, in", lambda: _parsers("reasoning", without=False)),
    (FAMILIES, r" and \d+ of (\d+), in", lambda: _parsers("reasoning")),
    (FAMILIES, r", in (\d+) families; `harness", lambda: len(load_families())),
    (FAMILIES, r"`canonical` \| (\d+) meanings", lambda: len(load_meanings().cases)),
    (FAMILIES, r"streamed in (\w+) deliveries", lambda: len(DELIVERIES["in-process"]["canonical"])),
    (FAMILIES, r"the (\d+) changes of `malformed\.yaml`", lambda: len(load_malformed().changes)),
    (FAMILIES, r"over HTTP only: (\d+) test cases", lambda: LOAD_CASES),
    (FAMILIES, r"it runs up to (\d+) tests", lambda: MOST),
    (FAMILIES, r"([\d,]+) to [\d,]+ tokens, or until", lambda: growing.SHORTEST),
    (FAMILIES, r"[\d,]+ to ([\d,]+) tokens, or until", lambda: growing.LONGEST),
    (FAMILIES, r"always at least (\w+) lengths", lambda: over_http.FEWEST),
    (FAMILIES, r"A power above ([\d.]+), of time or", lambda: curves.MOST_EXPONENT),
    (FAMILIES, r"a step above (\d+) ms", lambda: growing.BLOCKED_S * 1000),
    (FAMILIES, r"A power of time above ([\d.]+) is", lambda: curves.QUADRATIC),
    (FAMILIES, r"step at ([\d,]+) tokens or fewer", lambda: curves.ORDINARY_TOKENS),
    (FAMILIES, r"(\w+) answers grow at the same time", lambda: over_http.AT_ONCE),
    ("docs/how-to/air-gapped-gpu.md", r"at most (\w+) minutes", lambda: _gpu_check("limit_s") / 60),
    ("docs/how-to/cassette.md", r"larger than (\d+) MiB", lambda: MAX_BYTES / 2**20),
    ("docs/how-to/cluster.md", r"on its node (\w+) times", lambda: ATTEMPTS),
    ("docs/how-to/gateway.md", r"and (\d+) streams at once", lambda: AT_ONCE),
    ("docs/how-to/live-quality.md", r"at temperature (\d\.\d)", lambda: TEMPERATURE),
    ("docs/how-to/load.md", r"extra `load` adds (\w+) packages", lambda: _extra("load")),
    ("docs/how-to/load.md", r"still runs a request (\d+) seconds", lambda: END_WITHIN_S),
    ("docs/how-to/memory.md", r"every (\d+) seconds", lambda: waiting.REPORT_EVERY_S),
    ("docs/how-to/memory.md", r"Up to (\d+) stand-ins", lambda: gpus.SHARES),
    ("docs/how-to/report.md", r"the newest (\d+) runs", lambda: records.KEPT_RUNS),
    ("docs/how-to/report.md", r"(\d+) GiB together", lambda: records.KEPT_BYTES / 2**30),
    ("docs/reference/variables.md", r"the last (\d+) runs", lambda: records.KEPT_RUNS),
    ("docs/reference/variables.md", r"`VLLM_HARNESS_LINGER_S` .*\| (\d+) \|", lambda: LINGER_S),
    ("docs/reference/variables.md", r"`VLLM_HARNESS_LEASE_WAIT_S` .*\| (\d+) \|", lambda: waiting.WAIT_S),
    (
        "docs/reference/variables.md",
        r"`VLLM_HARNESS_RAY_PATIENCE_S` .*\| (\d+) \|",
        lambda: SILENCE_TIMEOUT_S,
    ),
    ("docs/how-to/cluster.md", r"`VLLM_HARNESS_RAY_PATIENCE_S` seconds \((\d+)\)", lambda: SILENCE_TIMEOUT_S),
    ("docs/explanation/fork-server.md", r"after (\w+) minutes without use", lambda: LINGER_S / 60),
    ("docs/how-to/scenario.md", r"\((\d+) seconds by default\)", lambda: Limits().request_s),
    ("docs/how-to/serving-mutants.md", r"(\d+) of them name their test", _named_tests),
    ("docs/how-to/serving-mutants.md", r"The files have (\d+) mutants", lambda: len(load_by_hand())),
    ("docs/how-to/upstream-tests.md", r"by one of (\w+) kinds", lambda: len(KINDS)),
    ("docs/how-to/write-a-test.md", r"examples: (\w+) models", _entries),
]


@cache
def _text(page: str) -> str:
    return (ROOT / page).read_text()


def number(stated: str) -> float:
    """A number that a page gives in digits or as a word."""
    word = stated.lower()
    return float(WORDS.index(word) if word in WORDS else word.replace(",", ""))


@pytest.mark.parametrize(("page", "pattern", "now"), STATED, ids=[f"{row[0]}: {row[1]}" for row in STATED])
def test_number_is_todays(page: str, pattern: str, now: Callable[[], float]) -> None:
    found = re.findall(pattern.replace(" ", r"\s+"), _text(page))
    assert len(found) == 1, f"{page} states this {len(found)} times, not once: {pattern}"
    assert number(found[0]) == pytest.approx(now()), f"{page} says {found[0]}, the code {now()}"


def test_wheels_are_of_this_version() -> None:
    stated = {
        version for page in PAGES for version in re.findall(r"vllm_harness-([\d.]+)-py3", page.read_text())
    }
    assert stated == {_project()["version"]}


def test_every_page_is_on_the_front_page_and_in_the_navigation() -> None:
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md") if path.parent != docs / "rules"}
    pages = (pages - {"index.md"}) | {"rules/README.md"}
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", _text("docs/index.md")))
    assert pages <= linked
    listed = re.findall(r"[\w/-]+\.md", str(yaml.safe_load(_navigation())))
    assert pages <= set(listed)
    assert len(listed) == len(set(listed))


def _navigation() -> str:
    """The navigation in mkdocs.yml, whose other keys need special YAML tags."""
    return _text("mkdocs.yml").partition("\nnav:\n")[2]


def test_every_folder_of_tests_is_on_its_page() -> None:
    folders: set[Any] = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert {name for name in folders if f"`tests/{name}" not in _text("docs/how-to/ci.md")} == set()


def test_a_stale_number_is_found() -> None:
    assert number("sixteen") == 16
    assert number("1,024") == 1024
    with pytest.raises(AssertionError, match="says 66, the code 67"):
        test_number_is_todays(FAMILIES, r"`canonical` \| (\d+) meanings", lambda: 67)
