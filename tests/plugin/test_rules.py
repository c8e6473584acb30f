"""The plugin's rules, on real servers: what fails a run, which tests run again, and what is counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_harness._files.paths import data_path
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import ExchangeRecord, LogLines, Outcome
from vllm_harness._runs.report.run import read_run

EXAMPLE = Path(__file__).with_name("example")
ONE_THREAD = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
"""Two threads that share their cores with other processes spend their time waiting for each other."""


def run(pytester: pytest.Pytester, pytestconfig: pytest.Config, name: str, *more: str) -> pytest.RunResult:
    """Runs an example in a subprocess of pytest."""
    pytester.copy_example(str(EXAMPLE / name))
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    vllm = [f"--vllm={pytestconfig.option.vllm}"] if pytestconfig.option.vllm else []
    return pytester.runpytest_subprocess(*more, *vllm, timeout=900)


def refused(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs tests that fail before a server starts, in this process, where the imports are already done."""
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.runpytest_inprocess(*arguments)


def folder(result: pytest.RunResult) -> Path:
    """The run folder, as named in the output of a run."""
    (line,) = [line for line in result.outlines if line.startswith("logs and results: ")]
    return Path(line.removeprefix("logs and results: "))


def results(result: pytest.RunResult) -> dict[str, Any]:
    """The results of the only target in the results.json of a run."""
    document = json.loads((folder(result) / "results.json").read_text())
    (only,) = document.values()
    return dict(only)


@pytest.mark.drawn("the plugin on a server", 3)
def test_each_broken_rule_fails_the_run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    options = ("--vllm-model=qwen3", "--vllm-lane=scripted", f"--vllm-folder={EXAMPLE / 'defects'}", "-ra")
    result = run(pytester, pytestconfig, "test_rules.py", *options, "--vllm-output=run")
    result.assert_outcomes(passed=3, failed=5, errors=1, xfailed=1, skipped=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines_random(
        [
            "E *CP101 error *stream and body differ*Rome*France*",
            "known defect vllm-2 no longer shows (It was wrong); fixed: bound the versions *",
            "the test should show vllm-1 (It is wrong) with a failure that matches AssertionError: wrong",
            "an expected failure without a reference: mark the test vllm_known_defect(...) instead",
            "a skip that models.yaml does not expect for this entry*[[]no-reason[]] the test would rather*",
            "*the test has the fixture check_body and never called it*",
        ]
    )
    counted = results(result)
    assert counted["skips"] == {"slow": 1}
    assert [*counted["defects"]] == ["vllm-1"]
    result.stdout.fnmatch_lines(
        [
            "*short test summary info*",
            "*vLLM servers*",
            "scripted-qwen3 *",
            "1 known defect of vLLM was seen, in 1 test",
            "skipped: slow 1",
        ]
    )
    report = (folder(result) / "report.md").read_text()
    test = "test_rules.py::test_a_defect_that_shows[scripted-qwen3]"
    shows = f"### vllm-1: It is wrong\n\n- `{test}`: `AssertionError: wrong`\n"
    assert shows in report
    _check_run(pytester.path / "run")


def _check_run(folder: Path) -> None:
    """Checks a run folder, above all its case of a stream and a body that differ."""
    read = read_run(folder)
    assert Counter(case.outcome for case in read.cases) == {
        Outcome.PASSED: 2,
        Outcome.FINDING: 6,
        Outcome.KNOWN: 1,
        Outcome.SKIPPED: 1,
    }
    assert read.end is not None
    assert read.end.exit_code == 1
    (target,) = read.targets.values()
    assert (target.title, target.frontend, bool(target.command and target.logs)) == ("qwen3", "python", True)
    different, finding = next(
        (case, one) for case in read.cases for one in case.findings if one.code == "CP101" and one.counts
    )
    exchanges = [record for _, record in records(folder, {"exchange"}) if isinstance(record, ExchangeRecord)]
    whole, streamed = [exchange for exchange in exchanges if exchange.case == different.id]
    assert streamed.api == whole.api == "responses"
    assert finding.exchange == streamed.id
    assert "".join(piece.text for piece in streamed.output).endswith("<|im_end|>")
    assert any(piece.text == "<|im_start|>" for piece in streamed.prompt)
    times = [piece.after for piece in streamed.stream]
    assert times == sorted(times)
    assert "".join(piece.text for piece in streamed.stream).startswith("event: response.created")
    assert streamed.headers["authorization"] == "[redacted]"
    assert isinstance(whole.answer, dict)
    logs = [record for _, record in records(folder, {"log"}) if isinstance(record, LogLines)]
    lines = [line for log in logs if log.case == different.id for line in log.lines]
    assert any("POST /v1/responses" in line for line in lines)


def entry_with_attempts(folder: Path, attempts: int) -> Path:
    """Writes a models.yaml whose live entry allows this number of attempts."""
    document = yaml.safe_load(data_path("models.yaml").read_text())
    entry = document["models"]["smollm2-135m"]
    document["models"] = {"smollm2-135m": {**entry, "limits": {"live_attempts": attempts}}}
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.vllm_slow
@pytest.mark.parametrize(("attempts", "passed", "retries"), [(3, 2, 2), (2, 1, 1)])
def test_the_entry_limits_the_attempts_of_live_tests(
    attempts: int, passed: int, retries: int, pytester: pytest.Pytester, pytestconfig: pytest.Config
) -> None:
    models = f"--vllm-models-file={entry_with_attempts(pytester.path, attempts)}"
    result = run(pytester, pytestconfig, "test_live.py", "--vllm-lane=live", models)
    assert result.parseoutcomes()["passed"] == passed
    assert results(result)["outcomes"]["rerun"] == retries
    assert (pytester.path / "wrong").read_text() == "x"


@pytest.mark.drawn("the plugin on a server", 3)
def test_repeats_are_sampled_by_seed(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    options = ("--vllm-lane=live", "--vllm-model=smollm2-135m", "--vllm-repeat=4")
    result = run(pytester, pytestconfig, "test_live.py", *options)
    answers = (pytester.path / "answers").read_text().splitlines()
    assert len(set(answers)) > 1, "different seeds give different answers"
    counted = results(result)["repeats"]
    cases = {name.split("::")[1].split("[")[0]: case for name, case in counted["cases"].items()}
    assert {name: (case["passed"], case["trials"]) for name, case in cases.items()} == {
        "test_the_third_try_is_right": (2, 4),
        "test_any_answer": (4, 4),
        "test_a_protocol_error_is_not_retried": (0, 4),
    }
    assert counted["pass@k"]["value"] == pytest.approx(2 / 3)
    assert counted["pass^k"]["value"] == pytest.approx(1 / 3)
    assert result.parseoutcomes()["missed"] == 2
    result.stdout.fnmatch_lines(
        ["live-smollm2-135m: repeated*", "0 of 4*0.00 [[]0.00, 0.49]*protocol_error*"]
    )


@pytest.mark.parametrize("option", ["--reruns=2", "--force-reruns=2"])
def test_options_for_more_attempts_are_rejected(option: str, pytester: pytest.Pytester) -> None:
    pytester.copy_example(str(EXAMPLE / "test_live.py"))
    result = refused(pytester, "--vllm-lane=live", "--vllm-model=smollm2-135m", option)
    assert result.ret != 0
    assert "limits.live_attempts" in "\n".join([*result.outlines, *result.errlines])
