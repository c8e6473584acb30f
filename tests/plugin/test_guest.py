"""The plugin in other projects: it uses none of their names, and costs them no time or disk space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugin.test_rules import refused, run

MODULES = """
import json, sys

def pytest_unconfigure(config):
    with open(f"modules-{config.pluginmanager.is_blocked('vllm_harness')}.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
OWN_NAMES = """
import pytest

def pytest_addoption(parser):
    for name in ("model", "slow", "lane", "device", "repeat", "at-once"):
        parser.addoption(f"--{name}", default="none")

def pytest_configure(config):
    for name in ("slow", "live", "model", "alone", "gpu"):
        config.addinivalue_line("markers", f"{name}: of this project")

@pytest.fixture
def _seed():
    return 7
"""
OF_OWN_NAMES = """
import pytest
from harness.ours import ANSWER

@pytest.mark.slow
@pytest.mark.model("ours")
@pytest.mark.alone
def test_own_names(_seed, request):
    assert (_seed, ANSWER, request.config.getoption("--model")) == (7, 42, "ours")
    assert request.config.getoption("--vllm-model") == ["qwen3"]

def test_with_a_server(vllm_server):
    raise AssertionError("is only collected")
"""


def modules(pytester: pytest.Pytester, *options: str) -> set[str]:
    """The names of the modules that a pytest run with these options imports."""
    result = pytester.runpytest_subprocess("--collect-only", "-q", *options)
    assert result.ret == 0
    (file,) = pytester.path.glob("modules-*.json")
    names = set(json.loads(file.read_text()))
    file.unlink()
    return names


def test_a_project_that_uses_no_fixture_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(MODULES)
    pytester.makepyfile("def test_nothing(): pass")
    more = modules(pytester) - modules(pytester, "-p", "no:vllm_harness")
    assert "vllm_harness.pytest_plugin" in more
    assert {name.split(".")[0] for name in more} == {"vllm_harness"}
    assert len(more) < 10


def test_a_project_can_use_its_own_names(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(OWN_NAMES)
    pytester.mkpydir("harness").joinpath("ours.py").write_text("ANSWER = 42\n")
    pytester.makepyfile(test_ours=OF_OWN_NAMES)
    options = ("--model=ours", "--slow=2", "--vllm-model=qwen3", "--vllm-lane=scripted", "--strict-markers")
    result = pytester.runpytest_subprocess(*options, "-k", "own_names")
    result.assert_outcomes(passed=1, deselected=1)
    result = pytester.runpytest_subprocess(*options, "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::test_with_a_server[[]scripted-qwen3[]]"])


def test_a_project_names_its_models_file_once(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", ours="models: {ours: {hub: {id: a/b}, family: f, lanes: [live]}}")
    pytester.makeini("[pytest]\nvllm_models_file = ours.yaml")
    pytester.makepyfile(**{"deeper/test_it": "def test_it(vllm_server): pass"})
    attached = ("--vllm-server-url=http://localhost:1", "--vllm-model=ours", "--collect-only", "-q")
    result = pytester.runpytest_subprocess(*attached, "deeper")
    result.stdout.fnmatch_lines(["*::test_it[[]attached-ours[]]"])
    result = refused(pytester, *attached, "--vllm-models-file=none.yaml")
    result.stderr.fnmatch_lines(["ERROR: *none.yaml*"])


OTHER_RELEASE = pytest.param("0.31.0", marks=pytest.mark.vllm_slow)


@pytest.mark.parametrize("spec", ["0.32.0", OTHER_RELEASE, "0.33.0@0.32.0"])
def test_collection_makes_nothing(
    spec: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collecting creates no environment, download or folder; the first server creates the environment."""
    home = pytester.mkdir("empty")
    monkeypatch.setenv("HOME", str(home))
    for variable in ("VLLM_HARNESS_CACHE", "VLLM_HARNESS_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    pytester.makepyfile("def test_it(vllm_server): pass")
    result = pytester.runpytest_subprocess("--collect-only", "-q", f"--vllm={spec}", "--vllm-device=cpu")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*::test_it[[]scripted-qwen3[]]"])
    assert list(home.rglob("*")) == []


def test_an_environment_error_fails_only_tests_with_servers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = pytester.makefile(".txt", occupied="a file where the cache's folder should be")
    monkeypatch.setenv("VLLM_HARNESS_CACHE", str(occupied))
    pytester.makepyfile(
        "def test_server(vllm_server): pass\ndef test_more(script): pass\ndef test_other(): pass"
    )
    options = ("--vllm-model=qwen3", "--vllm-lane=scripted", "--vllm=0.32.0", "--vllm-device=cpu")
    result = refused(pytester, *options)
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*occupied.txt*"])


def test_without_asyncio_a_line_names_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("async def test_it(async_openai_client): pass")
    result = pytester.runpytest_subprocess("-p", "no:asyncio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["async_openai_client needs pytest-asyncio*'vllm-harness[[]asyncio[]]'"])


@pytest.mark.drawn("the plugin on a server", 3)
def test_async_fixtures_in_strict_mode(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    result = run(
        pytester,
        pytestconfig,
        "test_strict.py",
        "-oasyncio_mode=strict",
        "--vllm-model=qwen3",
        "--vllm-lane=scripted",
    )
    result.assert_outcomes(passed=1)


def test_forks_and_workers_cannot_be_combined(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(vllm_server): pass")
    result = refused(pytester, "-n2", "--vllm-at-once=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--vllm-at-once cannot be combined with pytest-xdist's -n*"])


@pytest.mark.drawn("the plugin on a server", 3)
def test_each_worker_has_a_server_and_results(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    options = ("-n2", "--vllm-model=qwen3", "--vllm-lane=scripted")
    result = run(pytester, pytestconfig, "test_agent.py", *options)
    result.assert_outcomes(passed=3, errors=1)
    folders = [
        Path(line.split(": ", 1)[1])
        for line in result.outlines
        if line.startswith("vLLM servers of a worker")
    ]
    counted = [json.loads((folder / "results.json").read_text())["scripted-qwen3"] for folder in folders]
    assert sum(len(results["tests"]) for results in counted) == 3


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--vllm-model=nosuch", "unknown model 'nosuch'"),
        ("--vllm=0.1.0", "no lock for vLLM 0.1.0"),
        ("--vllm-repeat=0", "--vllm-repeat must be 1 or more"),
    ],
)
def test_a_wrong_option_is_reported_once(pytester: pytest.Pytester, option: str, why: str) -> None:
    for name in ("test_one", "test_two"):
        pytester.makepyfile(**{name: "def test_it(vllm_server): pass\ndef test_again(vllm_server): pass"})
    result = refused(pytester, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line.startswith("ERROR:")] == [result.errlines[0]]
    result.stderr.fnmatch_lines([f"ERROR: {why}*", "  try: *"])
    result.assert_outcomes()
