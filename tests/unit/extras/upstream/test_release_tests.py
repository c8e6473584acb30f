"""Which files are unpacked from vLLM's source distribution."""

from __future__ import annotations

import io
import tarfile

import pytest

from vllm_harness._errors import UsageError
from vllm_harness.extras.upstream.release_tests import _wanted, fetch, releases

FILES = {
    "vllm-0.1.0/tests/a/test_a.py": True,
    "vllm-0.1.0/tests/utils.py": True,
    "vllm-0.1.0/examples/tool.jinja": True,
    "vllm-0.1.0/examples/run.py": False,
    "vllm-0.1.0/pyproject.toml": True,
    "vllm-0.1.0/rust/pyproject.toml": False,
    "vllm-0.1.0/vllm/tests/x.py": False,
}


def test_only_tests_templates_and_settings_are_unpacked() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in FILES:
            tar.addfile(tarfile.TarInfo(name))
    content.seek(0)
    with tarfile.open(fileobj=content) as tar:
        unpacked = {member.name for member in _wanted(tar)}
    assert unpacked == {name.replace("vllm-0.1.0", "out") for name, wanted in FILES.items() if wanted}


def test_an_unpinned_release_is_refused_with_the_pinned_ones_named() -> None:
    assert "0.33.0" in releases()
    with pytest.raises(UsageError, match=r"(?s)0\.0\.1 are not pinned.*0\.33\.0"):
        fetch("0.0.1")
