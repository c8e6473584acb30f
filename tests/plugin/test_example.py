"""The plugin in another project: its fixtures, the table of results, and the messages for wrong options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.test_rules import refused

EXAMPLE = Path(__file__).with_name("example")


@pytest.mark.drawn("the plugin on a server", 3)
def test_another_project_uses_the_fixtures(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    pytester.copy_example(str(EXAMPLE / "test_agent.py"))
    pytester.makeini("[pytest]\nasyncio_mode = auto\n")
    vllm = [f"--vllm={pytestconfig.option.vllm}"] if pytestconfig.option.vllm else []
    result = pytester.runpytest_subprocess("--vllm-model=qwen3", "--vllm-lane=scripted", *vllm, timeout=900)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["*script 'script 1' was never used*", "scripted-qwen3 *", "logs and results: *"]
    )


def test_gpu_without_gpu_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.copy_example(str(EXAMPLE / "test_agent.py"))
    from vllm_harness._machine.gpus import gpus

    if gpus():
        pytest.skip("needs a machine without CUDA")
    result = refused(pytester, "-m", "vllm_gpu")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*-m vllm_gpu: no CUDA device on this machine, so nothing ran*"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vllm-model=gpt-os"], "did you mean gpt-oss"),
        (["--vllm-model=gpt-oss-120b", "--vllm-lane=scripted"], "the entry has no scripted lane"),
        (["--vllm=0.99"], "0.32.0"),
        (["--vllm-python=/no/such/python"], "/no/such/python"),
        (["--vllm-server-url=localhost:1", "--vllm-model=qwen3"], "is not an http"),
        (["--vllm-server-url=http://localhost:1"], "--vllm-server-url needs one --vllm-model"),
    ],
)
def test_a_wrong_option_is_explained(arguments: list[str], message: str, pytester: pytest.Pytester) -> None:
    pytester.copy_example(str(EXAMPLE / "test_agent.py"))
    result = refused(pytester, *arguments)
    assert result.ret != 0
    assert message in "\n".join([*result.outlines, *result.errlines])
