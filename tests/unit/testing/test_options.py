"""The old names of the pytest plugin's options, which work until version 0.2."""

from __future__ import annotations

import pytest

from vllm_harness._testing.options import OPTIONS, RENAMED, dest

VALUES = {
    "--vllm-spec": "0.32.0",
    "--vllm-defects": "defects",
    "--vllm-gateway": "litellm==1.0",
    "--vllm-report": "run",
}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_sets_the_new_option(old: str, pytester: pytest.Pytester) -> None:
    new, value = RENAMED[old], VALUES[old]
    pytester.makeconftest(f"def pytest_unconfigure(config): print('value', config.option.{dest(new)})")
    pytester.makepyfile("def test_nothing(): pass")
    lines = pytester.runpytest_subprocess(old, value).outlines
    assert f"`{old}` is now `{new}`; the old name will be removed in 0.2" in lines
    assert any(line.startswith("value") and line.endswith(value) for line in lines)
    word = new.removeprefix("--").removeprefix("vllm-")
    assert any(line.startswith(f"vllm-harness: {word} ") for line in lines)


def test_an_old_name_is_not_in_the_help(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    assert all(f"{name}=" not in shown for name in RENAMED)
    assert all(name in shown for name in OPTIONS)
