"""The summary at the end of a run, which fits on one screen, and report.md, which has all details."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.screens import Screen
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._configuration.targets import Target
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, load_defects
from vllm_harness._protocol import Finding, Severity
from vllm_harness._terminal.tables import plain_console
from vllm_harness._testing.report import REPORT, write_report
from vllm_harness._testing.results import TargetResult
from vllm_harness._testing.summary import MAX_LISTED, show

MODELS = ("qwen3", "gpt-oss")
KNOWN = {
    f"qwen3-{number}": Defect(id=f"qwen3-{number}", title="It is wrong", kind="defect") for number in range(2)
}
FOLDER = Path("/state/runs/20261122-001200-4242")


def target(name: str) -> Target:
    return Target(load_models().get(name), "scripted")


def result(
    name: str, *, defects: int = 0, skips: int = 0, failures: int = 0, restarts: int = 0
) -> TargetResult:
    """A result with these numbers of defects (in two tests each), skip reasons, failures and restarts."""

    def test(number: int, what: str) -> str:
        return f"tests/behaviours/test_chat_calls.py::test_{what}_{number}[scripted-{name}]"

    target_result = TargetResult(environment="release vllm 0.32.0 (cpu)", startup_s=16.4, restarts=restarts)
    target_result.outcomes = Counter(passed=1000, failed=failures, skipped=skips, xfailed=2 * defects)
    target_result.defects = {f"{name}-{n}": {test(n, "a"): "x", test(n, "b"): "x"} for n in range(defects)}
    target_result.skipped = {f"[code-{n}] a reason": [test(n, "skip")] for n in range(skips)}
    target_result.skips = Counter({f"code-{n}": 1 for n in range(skips)})
    target_result.failures = {test(n, "failed"): f"AssertionError: {'wrong ' * 50}" for n in range(failures)}
    return target_result


def shown(
    results: dict[str, TargetResult],
    *,
    terminal: bool = False,
    listed: bool = False,
    models: tuple[str, ...] = MODELS,
    defects: Defects | None = None,
) -> list[str]:
    """The lines of the summary on the terminal."""
    screen = Screen(terminal=terminal)
    console = plain_console(screen, width=80)
    show(
        console,
        [target(name) for name in models],
        results,
        FOLDER / REPORT,
        defects or load_defects(),
        listed=listed,
    )
    return screen.lines


def by_target(**results: TargetResult) -> dict[str, TargetResult]:
    return {f"scripted-{name.replace('_', '-')}": each for name, each in results.items()}


def test_a_run_without_failures_is_a_table_and_two_paths() -> None:
    lines = shown(by_target(qwen3=result("qwen3"), gpt_oss=result("gpt-oss")), terminal=True)
    assert lines == [
        "target             start  passed  known  failed  skipped",
        "scripted-qwen3    16.4 s    1000      0       0        0",
        "scripted-gpt-oss  16.4 s    1000      0       0        0",
        "server environment: release vllm 0.32.0 (cpu)",
        f"every failure, known defect and skip by test: {FOLDER}/report.md",
        f"logs and results: {FOLDER}",
    ]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("failures", [0, 150])
def test_the_worst_run_fits_on_one_screen(failures: int, terminal: bool) -> None:
    worst = {"defects": 94, "skips": 10, "failures": failures, "restarts": 5}
    results = by_target(qwen3=result("qwen3", **worst), gpt_oss=result("gpt-oss", **worst))
    for each in results.values():
        each.lacking, each.known = frozenset({"responses"}), {f"vllm#{n}" for n in range(14)}
        each.outcomes["rerun"] = 3
    lines = shown(results, terminal=terminal)
    assert len(lines) <= 25
    assert "servers that died and were started again: scripted-qwen3 5, scripted-gpt-oss 5" in lines
    assert "188 known defects of vLLM were seen, in 376 tests" in lines
    assert "14 known deviations of vLLM were seen" in lines


def test_deviations_of_a_gateway_have_its_name() -> None:
    results = by_target(qwen3=result("qwen3"))
    results["scripted-qwen3"].known = {"vllm#1", "litellm-27442", "litellm-28735"}
    lines = shown(results, terminal=True)
    assert "1 known deviation of vLLM was seen" in lines
    assert "2 known deviations of litellm were seen" in lines


def test_deviations_of_a_project_have_its_product() -> None:
    own = Defect.model_validate(
        {"id": "acme-1", "title": "It is wrong", "class": "defect", "product": "acme"}
    )
    results = by_target(qwen3=result("qwen3"))
    results["scripted-qwen3"].known = {"acme-1"}
    assert "1 known deviation of acme was seen" in shown(results, defects={own.id: own})
    assert "1 known deviation of vLLM was seen" in shown(results)


def test_the_first_failures_are_listed() -> None:
    results = by_target(qwen3=result("qwen3", failures=300))
    lines = shown(results, terminal=True)
    start = lines.index("300 failures:")
    first, *_, more = lines[start + 1 : start + 2 + MAX_LISTED]
    assert "test_failed_0[scripted-qwen3]" in first
    assert more == "  ... and 290 more"
    assert all(len(line) <= 80 for line in lines[start + 1 : start + 2 + MAX_LISTED])


@pytest.mark.parametrize(("failures", "repeated"), [(MAX_LISTED, False), (MAX_LISTED + 1, True)])
def test_a_few_listed_failures_are_not_repeated(failures: int, repeated: bool) -> None:
    lines = shown(by_target(qwen3=result("qwen3", failures=failures)), listed=True)
    assert any("test_failed_0" in line for line in lines) is repeated


def test_a_deviation_that_has_gone_is_always_listed() -> None:
    gone = result("qwen3", failures=2)
    gone.gone = ["KD101 warning: vllm#1 has gone"]
    lines = shown(by_target(qwen3=gone), listed=True)
    at = lines.index("3 failures:")
    assert lines[at + 1] == "  scripted-qwen3: KD101 warning: vllm#1 has gone"
    assert not any("test_failed" in line for line in lines)


def test_each_further_model_takes_one_line() -> None:
    models = tuple(entry.name for entry in load_models())
    worst = {"defects": 94, "skips": 20, "failures": 30, "restarts": 5}
    results = {f"scripted-{name}": result(name, **worst) for name in models}
    assert len(shown(results, terminal=True, models=models)) <= 25 + len(models) - 5


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    bad = result("qwen3")
    bad.failures = {"tests/t.py::test_t[scripted-qwen3]": "\x1b[2J[red]`x`[/]\nsecond"}
    assert "  tests/t.py::test_t[scripted-qwen3]: \\x1b[2J[red]`x`[/]" in shown(by_target(qwen3=bad))
    assert "- `tests/t.py::test_t[scripted-qwen3]`: `` \\x1b[2J[red]`x`[/] ``" in report(tmp_path, qwen3=bad)


def report(folder: Path, **results: TargetResult) -> list[str]:
    """Writes report.md, and returns its lines."""
    write_report(by_target(**results), KNOWN, folder / REPORT)
    return (folder / REPORT).read_text().splitlines()


def test_the_report_lists_each_test_by_reason(tmp_path: Path) -> None:
    qwen3, gpt_oss = result("qwen3", defects=2, skips=1, failures=1), result("gpt-oss", defects=1)
    gpt_oss.defects = {"qwen3-0": {"tests/t.py::test_t[scripted-gpt-oss]": "y"}}
    finding = Finding("RS101", Severity.ERROR, 1, "$.a", "it is wrong", known="vllm#9")
    qwen3.add([finding])
    lines = report(tmp_path, qwen3=qwen3, gpt_oss=gpt_oss)
    assert "| scripted-qwen3 | 16.4 s | 1000 | 4 | 1 | 1 |" in lines
    known = lines[lines.index("## Known defects (2, tests: 5)") :]
    assert known[:6] == [
        "## Known defects (2, tests: 5)",
        "",
        "### qwen3-0: It is wrong",
        "",
        "- `tests/behaviours/test_chat_calls.py::test_a_0[scripted-qwen3]`: `x`",
        "- `tests/behaviours/test_chat_calls.py::test_b_0[scripted-qwen3]`: `x`",
    ]
    assert known[6] == "- `tests/t.py::test_t[scripted-gpt-oss]`: `y`"
    assert "### [code-0] a reason" in known
    assert "- scripted-qwen3: vllm#9" in known
    assert any("it is wrong" in line for line in known[known.index("- scripted-qwen3: vllm#9") :])
    assert any(line.startswith("- `tests/behaviours/test_chat_calls.py::test_failed_0[") for line in lines)
