"""Making a bundle: the uv commands, the content, and that a bundle appears complete or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments import installer
from vllm_harness._environments.assets import AssetError
from vllm_harness._environments.locks import lock_for
from vllm_harness._errors import UsageError
from vllm_harness.cli.main import app
from vllm_harness.extras.bundles import contents, create
from vllm_harness.extras.bundles.install import read_manifest

LOCK = """\
# A lock.
torch==2.13.0+cpu
aiohttp==3.14.5 ; sys_platform == 'linux' \\
    --hash=sha256:0656 \\
    --hash=sha256:0921
nvidia-nccl==2 \\
    --hash=sha256:0133
"""


def test_requirements_come_with_their_hashes() -> None:
    torch, aiohttp, nccl = contents.requirements(LOCK)
    assert torch == "torch==2.13.0+cpu"
    assert aiohttp.startswith("aiohttp==3.14.5 ;")
    assert aiohttp.endswith("--hash=sha256:0921")
    assert nccl.endswith("0133")


def test_every_lock_is_parsed() -> None:
    for path in Path("env").glob("*.lock"):
        text = path.read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
        assert len(contents.requirements(text)) == len(lines)


@pytest.fixture
def uv(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The uv commands that would run, with the text of requirements files; none of them runs."""
    commands: list[list[str]] = []

    def run(*arguments: Any, **_: Any) -> None:
        texts = [part.read_text() if str(part).endswith(".hashed") else str(part) for part in arguments]
        commands.append(texts)

    monkeypatch.setattr(installer, "run_uv", run)
    return commands


def test_hashed_requirements_are_downloaded_with_their_hashes(uv: list[list[str]], tmp_path: Path) -> None:
    contents._download(
        contents.requirements(LOCK), "lock", tmp_path, lambda _: None, "--extra-index-url", "https://torch"
    )
    hashed, unhashed = uv
    assert "--require-hashes" in hashed
    assert "aiohttp==3.14.5" in hashed[-1]
    assert "torch" not in hashed[-1]
    assert unhashed[-3:] == ["--extra-index-url", "https://torch", "torch==2.13.0+cpu"]
    assert not list(tmp_path.glob("*.hashed"))


def test_torch_is_left_out_on_request(
    uv: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "torch_at_hand", lambda _: True)
    lock = lock_for("0.32.0", "cuda")
    contents.collect_wheels(tmp_path, lock, True, None, lambda _: None)
    kept = [each.partition("==")[0] for each in contents.requirements(uv[-1][-1])]
    assert {"vllm", "nvidia-cutlass-dsl"} < set(kept)
    assert not {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"} & set(kept)
    assert contents.requirements((tmp_path / "locks" / lock.path.name).read_text()) == contents.requirements(
        uv[-1][-1]
    )


@pytest.mark.parametrize(("text", "size"), [("60M", 60_000_000), ("2g", 2 * 10**9), ("1500000", 1_500_000)])
def test_sizes(text: str, size: int) -> None:
    assert create.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "60", "60X", "-1M", "0.5G"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size of 1M or more"):
        create.parse_size(text)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replaces the steps that need network access."""

    def put(folder: Path, *_: Any) -> None:
        (folder / "wheels").mkdir(exist_ok=True)
        (folder / "wheels" / "a.whl").write_bytes(b"x" * 2_500_000)

    def fetch(name: str, **_: Any) -> Path:
        asset = tmp_path / name
        asset.mkdir(exist_ok=True)
        (asset / "tokenizer.json").write_text(name)
        return asset

    monkeypatch.setattr(create.contents, "collect_checkout", put)
    monkeypatch.setattr(create.contents, "collect_wheels", put)
    monkeypatch.setattr(create.contents.assets, "fetch", fetch)


@pytest.mark.parametrize("spelling", [["env", "bundle"], ["env", "bundle", "create"]])
@pytest.mark.usefixtures("collected")
def test_both_spellings_make_a_bundle(tmp_path: Path, spelling: list[str]) -> None:
    out = tmp_path / "out"
    options = ["--device", "cpu", "--vllm", "0.32.0", "--model", "qwen3,gpt-oss", "--part-size", "1M"]
    answer = CliRunner().invoke(app, [*spelling, str(out), *options])
    assert answer.exit_code == 0, answer.output
    assert "3 MB in 3 parts" in answer.output
    manifest = read_manifest(out)
    assert manifest["models"] == ["qwen3", "gpt-oss"]
    assert manifest["assets"] == ["harmony-encodings", "tokenizer-gpt-oss", "tokenizer-qwen3"]
    assert [part["size"] for part in manifest["parts"]][:2] == [1_000_000] * 2
    assert "assets/tokenizer-qwen3/tokenizer.json" in [file["path"] for file in manifest["files"]]
    assert (out / "install.py").exists()


@pytest.mark.usefixtures("collected")
def test_a_failure_leaves_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssetError("no source gives it")

    monkeypatch.setattr(create.contents, "collect_assets", fail)
    there = sorted(tmp_path.iterdir())
    with pytest.raises(AssetError):
        create.create(tmp_path / "out", version="0.32.0", device="cpu", entries=[], part_size=10**6)
    assert sorted(tmp_path.iterdir()) == there


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        create.create(tmp_path, version="0.32.0", device="cpu", entries=[], part_size=10**6)


def test_weights_that_are_not_an_asset_come_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-8B"
    snapshot = repository / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (repository / "blob").write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to(repository / "blob")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, revision: str(snapshot))
    known = load_models()
    ids = contents.collect_hub_weights(
        tmp_path / "content", [known.get("qwen3"), known.get("smollm2-135m")], lambda _: None
    )
    assert ids == ["Qwen/Qwen3-8B"]
    packed = tmp_path / "content/hub/models--Qwen--Qwen3-8B"
    assert (packed / "refs/main").read_text() == "abc123"
    assert (packed / "snapshots/abc123/model.safetensors").read_bytes() == b"weights"
    assert not (packed / "snapshots/abc123/model.safetensors").is_symlink()
