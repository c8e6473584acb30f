"""Installing a bundle: it is checked before use, and the environment and assets appear complete."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_harness._environments import assets
from vllm_harness._environments.assets import Asset, AssetError
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness.cli.main import app
from vllm_harness.extras.bundles import place
from vllm_harness.extras.bundles.parts import pack
from vllm_harness.extras.bundles.place import BundleError

ENVIRONMENT = Environment("release", Path("/env/bin/python"), "3.11.9", "0.32.0", "cpu", "2.13.0+cpu")


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The uv variables with which environments would be made; none is made."""
    variables: list[dict[str, str]] = []

    def create(version: str, device: str, progress: Any) -> Environment:
        variables.append({name: value for name, value in os.environ.items() if name.startswith("UV_")})
        assert sorted(p.name for p in Path(variables[-1]["UV_FIND_LINKS"]).iterdir()) == ["a.whl", "b.whl"]
        return ENVIRONMENT

    monkeypatch.setattr(place.release, "create", create)
    return variables


def test_environments_are_made_only_from_its_wheels(
    bundle: Path, cache: Path, created: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_NO_INDEX", "0")
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    assert place.install(bundle).environment is ENVIRONMENT
    assert created[0]["UV_OFFLINE"] == created[0]["UV_NO_INDEX"] == "1"
    assert os.environ["UV_NO_INDEX"] == "0"
    assert "UV_OFFLINE" not in os.environ
    assert list(cache.iterdir()) == []


def test_a_damaged_bundle_is_not_used(bundle: Path, cache: Path, created: list[dict[str, str]]) -> None:
    (bundle / "part-0003").unlink()
    with pytest.raises(BundleError, match="part-0003 is missing"):
        place.install(bundle)
    assert created == []


def test_from_the_command_line(bundle: Path, created: list[dict[str, str]]) -> None:
    answer = CliRunner().invoke(app, ["env", "bundle", "install", str(bundle)])
    assert answer.exit_code == 0, answer.output
    assert "release vllm 0.32.0 (cpu, torch 2.13.0+cpu)\n/env/bin/python" in answer.output


def _edited(bundle: Path, **values: Any) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **values}))


def test_a_bundle_with_another_lock_is_refused(bundle: Path) -> None:
    _edited(bundle, lock="00000000")
    with pytest.raises(
        UsageError, match=r"made for another vllm-0.32.0-cpu.lock\n  try: install the harness"
    ):
        place.install(bundle)


def test_a_bundle_without_torch_needs_over(bundle: Path) -> None:
    _edited(bundle, without_torch=True)
    with pytest.raises(UsageError, match=r"made without torch\n  try: name a Python .*--over"):
        place.install(bundle)


def test_a_bundle_with_torch_refuses_over(bundle: Path) -> None:
    with pytest.raises(UsageError, match="made with torch"):
        place.install(bundle, over=Path("/opt/torch/bin/python"))


@pytest.fixture
def torch(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This Python, which pretends to have the torch that vLLM 0.32.0 was built for; the bundle has none."""
    _edited(bundle, without_torch=True)
    probed = SimpleNamespace(torch="2.13.0+cu130")
    monkeypatch.setattr(place.installed, "probe", lambda _: probed)
    return Path(sys.executable)


def test_over_a_python_that_has_torch(
    bundle: Path, torch: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []

    def run_uv(*arguments: object, **_: object) -> None:
        commands.append(" ".join(map(str, arguments)))
        if arguments[0] == "venv":
            target = Path(str(arguments[-1]))
            (target / "lib/python3.11/site-packages").mkdir(parents=True)
            (target / "pyvenv.cfg").write_text("version_info = 3.11.9\n")

    monkeypatch.setattr(place, "run_uv", run_uv)
    monkeypatch.setattr(place, "verify", lambda environment: {})
    environment = place.install(bundle, over=torch).environment
    venv, install = commands
    assert f"--python {torch}" in venv
    assert "--no-deps" in install
    assert install.endswith("locks/vllm-0.32.0-cpu.lock")
    folder = environment.python.parents[1]
    assert folder.parent == cache / "environments"
    assert folder.name.startswith("vllm-0.32.0-cpu-over-")
    packages = (folder / "lib/python3.11/site-packages/over.pth").read_text()
    assert f"site.addsitedir({str(Path(pytest.__file__).parents[1])!r})" in packages


def test_over_a_python_with_another_torch(bundle: Path, torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = SimpleNamespace(torch=None)
    monkeypatch.setattr(place.installed, "probe", lambda _: probed)
    with pytest.raises(UsageError, match=r"has torch none, but vLLM 0.32.0 was built for 2.13.0\+cpu"):
        place.install(bundle, over=torch)


@pytest.fixture
def asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an asset in another cache."""
    definition = Asset(description="a tokenizer", sources=[])
    monkeypatch.setattr(assets, "definitions", lambda: {"t": definition})
    folder = tmp_path / "other" / "t"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    sizes = {"tokenizer.json": 2}
    manifest = {"definition": definition.digest, "source": "npm t@1", "files": sizes}
    (folder / ".vllm-harness.json").write_text(json.dumps(manifest))
    return folder


def test_an_asset_is_adopted_if_it_is_the_pinned_one(asset: Path, cache: Path) -> None:
    assert assets.adopt("t", asset) == cache / "assets" / "t"
    fetched = assets.cached("t")
    assert fetched is not None
    assert fetched.source == "npm t@1"
    assert [path.name for path in (cache / "assets").iterdir() if path.is_dir()] == ["t"]
    (asset / "tokenizer.json").write_text("{}\n\n")
    with pytest.raises(AssetError, match=r"not the version of the asset t that env/assets.yaml pins"):
        assets.adopt("t", asset)


def test_weights_are_found_by_the_client_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub import constants

    source = tmp_path / "content/hub/models--o--m"
    (source / "refs").mkdir(parents=True)
    (source / "refs/main").write_text("a" * 40)
    (source / "snapshots" / ("a" * 40)).mkdir(parents=True)
    (source / "snapshots" / ("a" * 40) / "config.json").write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place._place_hub(tmp_path / "content/hub")
    snapshot = huggingface_hub.snapshot_download("o/m", cache_dir=tmp_path / "hub", local_files_only=True)
    assert (Path(snapshot) / "config.json").read_text() == "{}"


def test_packing_follows_links(tmp_path: Path) -> None:
    (tmp_path / "content").mkdir()
    (tmp_path / "blob").write_bytes(b"12345")
    (tmp_path / "content/link").symlink_to(tmp_path / "blob")
    (tmp_path / "b").mkdir()
    manifest = pack(tmp_path / "content", tmp_path / "b", 10**6, {})
    assert manifest["files"][0]["size"] == 5
