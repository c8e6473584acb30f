"""A state folder that cannot be used is a usage error of pytest, not an internal error."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("options", [(), ("--vllm-output", "auto")], ids=" ".join)
def test_a_file_in_place_of_the_state_folder(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(pytester.makefile(".txt", state="")))
    pytester.makepyfile("def test_a(vllm_server): pass")
    ended = pytester.runpytest_subprocess("--vllm-model", "qwen3", "--vllm-lane", "scripted", *options)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(
        ["ERROR: the state folder *state.txt is not a folder*", "*VLLM_HARNESS_STATE*"]
    )
    assert "Traceback" not in ended.stdout.str() + ended.stderr.str()
    assert "INTERNALERROR" not in ended.stdout.str() + ended.stderr.str()
