"""uv receives pip's configuration, and errors contain uv's output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._environments import installer, pip_settings
from vllm_harness._environments.installer import InstallError, remedy, run_uv, uv_environ

CONFIGURED = {
    "find-links": "/wheels /more",
    "cert": "/ca.pem",
    "extra-index-url": "https://a https://b",
    "timeout": "9",
}


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_settings, "pip_options", lambda: CONFIGURED)


def test_uv_gets_the_settings_of_pip(configured: None) -> None:
    assert pip_settings.for_uv({}) == {
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_EXTRA_INDEX_URL": "https://a https://b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_the_settings_of_uv_take_precedence(configured: None) -> None:
    configured = {"UV_FIND_LINKS": "/mine", "SSL_CERT_FILE": "/mine.pem", "UV_INDEX_STRATEGY": "first-index"}
    assert configured.items() <= uv_environ(configured).items()


def test_the_settings_of_pip_have_its_precedence() -> None:
    listing = (
        "global.cert='/g'\n:env:.cert='/e'\ninstall.cert='/i'\ninstall.find-links='/w'\nfreeze.cert='/x'\n"
    )
    assert dict(pip_settings._parsed(listing)) == {"cert": "/e", "find-links": "/w"}


def test_the_file_runs_with_the_standard_library_alone() -> None:
    command = [sys.executable, "-I", "-S", pip_settings.__file__]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(line.startswith("export ") for line in answer.stdout.splitlines())


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        ("No space left on device (os error 28)", "free disk space"),
        ("Because there is no version of torch==2.13.0+cpu", "PyTorch's CPU index"),
        ("Hash mismatch for `idna==3.20`", "a package differs from the locked one"),
        ("error sending request for url (https://x/simple)", "check the network"),
        ("npm error code ENOTFOUND", "check the network"),
        ("something new", ""),
    ],
)
def test_remedies(output: str, hint: str) -> None:
    assert hint in remedy(output)
    assert bool(hint) == bool(remedy(output))


def test_the_error_contains_the_output_of_uv(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(InstallError, match="`uv pip install` failed:") as raised:
        run_uv(
            "pip", "install", "--offline", "--target", tmp_path, "no-such-thing-x==1", progress=lines.append
        )
    assert "no-such-thing-x" in raised.value.message
    assert lines


def test_without_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installer.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="uv is neither beside this Python nor on PATH") as raised:
        installer.uv_path()
    assert raised.value.hint == "pip install uv"
