"""What is said of an environment whose vLLM imports, but is not what it should be."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from vllm_harness.environments.spec import Environment
from vllm_harness.environments.verify import BrokenEnvironmentError, verify


@pytest.mark.parametrize(
    ("found", "words", "hint"),
    [
        ({"vllm": "0.25.0+cu130", "device": "cuda"}, "is in fact vLLM 0.25.0", "env remove"),
        ({"vllm": "0.26.0+cpu", "device": "cpu"}, "is a build for cpu", "env remove"),
        ({"vllm": "0.26.0+cu130", "device": ""}, "imports in .*, but finds no CUDA device", "nvidia-smi"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, found: dict[str, str], words: str, hint: str) -> None:
    environment = _answering(tmp_path, {"torch": "2.11.0", "kernels": True, **found})
    with pytest.raises(BrokenEnvironmentError, match=words) as raised:
        verify(environment)
    assert hint in str(raised.value)


def test_what_is_as_it_should_be_is_told(tmp_path: Path) -> None:
    found = {"vllm": "0.26.0+cu130", "device": "cuda", "torch": "2.11.0", "kernels": True}
    assert verify(_answering(tmp_path, found)) == found


def _answering(folder: Path, found: dict[str, object]) -> Environment:
    """A CUDA release whose interpreter says no more than this."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(found))}\n")
    python.chmod(0o755)
    return Environment(
        kind="release",
        python=python,
        python_version="3.12.0",
        vllm_version="0.26.0",
        device="cuda",
        torch="2.11.0+cu130",
    )
