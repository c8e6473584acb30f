"""On a machine without a network (simulated by a namespace): from a bundle to a real server's answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LOOPBACK_ONLY = ["unshare", *(["--map-root-user"] if os.getuid() else []), "--net", "sh", "-ec"]
ASK = """
from vllm_harness._server.remote import RemoteServer
with RemoteServer("qwen3", lane="scripted", vllm="0.32.0") as server:
    server.script("There is no network here.")
    print(server.client().responses.create(model=server.model, input="hi").output_text)
"""
MINUTE = 60


def without_network(script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a shell script that has no network interface but loopback."""
    command = [*LOOPBACK_ONLY, f"ip link set lo up\n{script}"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20 * MINUTE)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle with vLLM 0.32.0 for CPU and the Qwen3 stand-in, in parts of 60 MB."""
    probe = without_network("true", dict(os.environ)) if shutil.which("unshare") else None
    if probe is None or probe.returncode:
        why = probe.stderr.strip() if probe else "`unshare` is not installed"
        pytest.skip(f"no network namespace can be made: {why}")
    folder = tmp_path_factory.mktemp("made") / "bundle"
    options = ["--device", "cpu", "--vllm", "0.32.0", "--model", "qwen3", "--part-size", "60M"]
    subprocess.run(
        [Path(sys.executable).with_name("vllm-harness"), "env", "bundle", folder, *options], check=True
    )
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment variables of a new user, who has an empty home folder, and Python on PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "bin/python3").symlink_to(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    yield {
        "PATH": f"{tmp_path / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "home/cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "VLLM_HARNESS_LINGER_S": "0",  # the fork server ends with the command
    }
    shutil.rmtree(tmp_path)  # pytest would keep these gigabytes for three runs


@pytest.mark.vllm_slow
@pytest.mark.timeout(40 * MINUTE)
def test_from_a_bundle_to_an_answer(bundle: Path, bare: dict[str, str], tmp_path: Path) -> None:
    assert max(path.stat().st_size for path in bundle.iterdir()) <= 60_000_000
    folder = tmp_path / "vllm-harness"
    (tmp_path / "ask.py").write_text(ASK)
    interfaces = without_network("tail -n +3 /proc/net/dev", bare).stdout.splitlines()
    assert [line.partition(":")[0].strip() for line in interfaces] == ["lo"]

    installed = without_network(f"time python3 {bundle}/install.py {folder}", bare)
    print(installed.stdout, installed.stderr)
    assert installed.returncode == 0, installed.stderr
    assert "asset tokenizer-qwen3" in installed.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ask.py", "bin", "home", "vllm-harness"]

    completed = without_network(f"cd {folder} && .venv/bin/python {tmp_path}/ask.py", bare)
    assert completed.stdout.strip() == "There is no network here.", completed.stderr
    # the scripts find the existing environment, and do not make it again
    checked = without_network(f"{folder}/scripts/test tests/unit/extras/bundles -q", bare)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.vllm_slow
@pytest.mark.timeout(10 * MINUTE)
def test_a_lost_part_is_named_and_nothing_is_left(bundle: Path, bare: dict[str, str], tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    for path in bundle.iterdir():
        os.link(path, lost / path.name)
    (lost / "part-0004").unlink()
    ended = without_network(f"python3 {lost}/install.py {tmp_path}/vllm-harness", bare)
    assert ended.returncode == 2
    assert "part-0004 is missing" in ended.stderr
    assert not (tmp_path / "vllm-harness").exists()
    assert list((tmp_path / "home").iterdir()) == []
