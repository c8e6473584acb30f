"""Tests environment specs, and the environment variables of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._environments import Environment, resolve
from vllm_harness._environments.spec import Spec, parse, runtime_variables
from vllm_harness._environments.store import MissingEnvironmentError
from vllm_harness._errors import UsageError


def environment(**changes: object) -> Environment:
    fields = {"kind": "release", "python": Path("/e/bin/python"), "python_version": "3.11.7"}
    fields |= {
        "vllm_version": "0.32.0",
        "device": "cpu",
        "torch": "2.13.0+cpu",
        "pythonpath": [Path("/stub")],
    }
    return Environment(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("0.32.0", Spec("release", version="0.32.0")),
        ("0.22.1", Spec("release", version="0.22.1")),
        ("installed", Spec("installed")),
        ("installed:/opt/v/bin/python", Spec("installed", python=Path("/opt/v/bin/python"))),
        ("installed:~/v/bin/python", Spec("installed", python=Path.home() / "v/bin/python")),
        ("0.33.0@0.32.0", Spec("graft", version="0.33.0", kernels="0.32.0")),
        ("0.34.0rc1@0.32.0", Spec("graft", version="0.34.0rc1", kernels="0.32.0")),
        ("tree:/src/vllm@0.32.0", Spec("tree", tree=Path("/src/vllm"), kernels="0.32.0")),
        ("tree:/src/vllm", Spec("tree", tree=Path("/src/vllm"))),
        ("tree:/src/a@b/vllm", Spec("tree", tree=Path("/src/a@b/vllm"))),
        ("tree:~/vllm", Spec("tree", tree=Path.home() / "vllm")),
    ],
)
def test_every_form_is_parsed(text: str, spec: Spec) -> None:
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.33.0@", "is not an environment"),
        ("0.33@0.32.0", "is not an environment"),
        ("tree:", "names no folder"),
        ("tree:@0.32.0", "names no folder"),
        ("latest", "is not an environment"),
        ("0.32", "is not an environment"),
        ("", "is not an environment"),
    ],
)
def test_other_forms_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse(text)
    assert raised.value.hint.startswith("use `")


def test_an_environment_is_described_in_one_line() -> None:
    assert environment().describe() == "release vllm 0.32.0 (cpu, torch 2.13.0+cpu)"
    assert environment(kind="installed", device="cuda", torch=None).describe() == (
        "installed vllm 0.32.0 (cuda, torch unknown)"
    )
    assert environment(
        kind="graft", vllm_version="0.33.0", kernels="0.32.0", commit="4ba787ec9"
    ).describe() == ("graft vllm 0.33.0 over kernels 0.32.0 (cpu, torch 2.13.0+cpu, commit 4ba787ec9)")
    assert environment(kind="tree", kernels="0.32.0", tree=Path("/src/vllm")).describe() == (
        "tree vllm 0.32.0 over kernels 0.32.0 (cpu, torch 2.13.0+cpu, /src/vllm)"
    )


def test_the_caller_overrides_the_variables_of_servers() -> None:
    environ = environment().environ({"VLLM_CPU_KVCACHE_SPACE": "8", "PATH": "/bin"})
    assert environ["VLLM_CPU_KVCACHE_SPACE"] == "8"
    assert environ["VLLM_SYSTEM_START_DATE"] == runtime_variables("cpu")["VLLM_SYSTEM_START_DATE"]
    assert environ["PATH"] == "/bin"


def test_pythonpath_precedes_that_of_the_caller() -> None:
    assert environment().environ({"PYTHONPATH": "/mine"})["PYTHONPATH"] == "/stub:/mine"
    assert environment().environ({})["PYTHONPATH"] == "/stub"
    assert "PYTHONPATH" not in environment(pythonpath=[]).environ({})


def test_only_environments_of_the_harness_write_bytecode() -> None:
    forbidden = {"PYTHONDONTWRITEBYTECODE": "1"}
    assert "PYTHONDONTWRITEBYTECODE" not in environment().environ(forbidden)
    assert environment(kind="installed").environ(forbidden)["PYTHONDONTWRITEBYTECODE"] == "1"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_runtime_variables_are_text(device: str) -> None:
    assert all(isinstance(value, str) for value in runtime_variables(device).values())
    assert ("VLLM_CPU_KVCACHE_SPACE" in runtime_variables(device)) == (device == "cpu")


def test_the_hint_for_a_release_without_an_environment() -> None:
    with pytest.raises(MissingEnvironmentError) as raised:
        resolve("0.32.0", "cpu")
    assert raised.value.hint == "vllm-harness env create 0.32.0 --device cpu"


def test_the_hint_for_a_release_without_a_lock() -> None:
    with pytest.raises(UsageError, match=r"no lock for vLLM 0\.1\.0 on cpu") as raised:
        resolve("0.1.0", "cpu", create=True)
    assert "0.32.0" in raised.value.hint
