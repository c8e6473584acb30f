"""Installs a bundle's server environment and assets in the harness's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness._environments import assets, installed, release
from vllm_harness._environments.installer import run_uv
from vllm_harness._environments.locks import lock_for
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import Marker, described, environments_folder, make
from vllm_harness._environments.verify import verify
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import cache_dir
from vllm_harness._machine.processes import run_captured
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.bundles import install as installer
from vllm_harness.extras.bundles.packages import see_packages

_PACKAGES = "import json, sys; print(json.dumps([p for p in sys.path if p.endswith('-packages')]))"


class BundleError(UsageError):
    """A bundle is damaged or does not fit this machine."""

    @classmethod
    def of(cls, error: installer.InstallerError) -> BundleError:
        """The same error, with its exit code."""
        made = cls(str(error))
        made.exit_code = error.exit_code
        return made


@dataclass(frozen=True)
class InstalledBundle:
    """What a bundle installed: a server environment, and the names of assets and hub weights."""

    environment: Environment
    assets: list[str]
    hub: list[str]


def install(
    bundle: Path, *, unpacked: Path | None = None, over: Path | None = None, progress: Progress = quiet
) -> InstalledBundle:
    """Makes the bundle's server environment and installs its assets in the cache, without a network.

    The sha256 of every part and file is checked before anything in the bundle is used. The environment and
    each asset become visible once they are complete.

    Args:
        bundle: the folder of the bundle.
        unpacked: the folder into which `install.py` has already unpacked the bundle; None to unpack it here.
        over: for a bundle without torch, a Python that has the torch version that vLLM was built for.
        progress: receives a line for each step.

    Raises:
        BundleError: the folder is not a bundle, a part is missing or damaged, the bundle is for another
            Python or machine, or the disk is full.
        UsageError: the bundle belongs to another version of the harness, or `over` is missing or superfluous.
        InstallError: uv fails.
        BrokenEnvironmentError: vLLM cannot be imported in the new environment.
        AssetError: an asset in the bundle is damaged or not the version that `env/assets.yaml` pins.
    """
    try:
        manifest = installer.read_manifest(bundle)
        installer.check_machine(manifest)
        check_lock(bundle, manifest, over)
        if unpacked is None:
            progress(f"checking {len(manifest['parts'])} parts")
        files = nullcontext(unpacked) if unpacked else installer.unpacked(bundle, manifest, cache_dir())
        with files as folder:
            with _variables(installer.offline(folder / "wheels")):
                environment = _environment(manifest, folder, over, progress)
            for name in manifest["assets"]:
                assets.adopt(name, folder / "assets" / name, progress=progress)
            _place_hub(folder / "hub")
    except installer.InstallerError as error:
        raise BundleError.of(error) from None
    return InstalledBundle(environment, manifest["assets"], manifest["hub"])


def check_lock(bundle: Path, manifest: Mapping[str, Any], over: Path | None = None) -> None:
    """Raises UsageError if the bundle's lock is not the harness's, or `over` is missing or superfluous."""
    here = lock_for(manifest["vllm"], manifest["device"])
    if here.digest != manifest["lock"]:
        raise UsageError(
            f"{bundle} was made for another {here.path.name}",
            hint=f"install the harness in the bundle: python3 {bundle / 'install.py'} FOLDER",
        )
    if manifest["without_torch"] != (over is not None):
        without, hint = "with", "leave out --over"
        if over is None:
            without, hint = "without", "name a Python on this machine that has torch: --over /path/to/python"
        raise UsageError(f"{bundle} was made {without} torch", hint=hint)


def _environment(
    manifest: Mapping[str, Any], folder: Path, over: Path | None, progress: Progress
) -> Environment:
    if over is None:
        return release.create(manifest["vllm"], manifest["device"], progress=progress)
    lock = lock_for(manifest["vllm"], manifest["device"])
    torch = installed.probe(over).torch or "none"
    if torch.partition("+")[0] not in lock.fits_torch:
        raise UsageError(
            f"{over} has torch {torch}, but vLLM {lock.version} was built for {lock.torch}",
            hint="name a Python that has that torch, or use a bundle that contains it",
        )
    target = (
        environments_folder()
        / f"{lock.name}-over-{hashlib.sha256(bytes(over)).hexdigest()[:8]}-{lock.digest}"
    )

    def build() -> Marker:
        progress(f"making {target.name} over {over}")
        run_uv("venv", "--no-project", "--python", over, target, progress=progress)
        pinned = folder / "locks" / lock.path.name
        python = target / "bin/python"
        run_uv("pip", "install", "--python", python, "--no-deps", "--requirements", pinned, progress=progress)
        listed = run_captured(over, "-c", _PACKAGES)
        listed.check_returncode()
        see_packages(json.loads(listed.stdout), target, "over.pth")
        marker = Marker(lock.version, lock.device, torch)
        progress("checking that vllm imports")
        verify(described(target, marker))
        return marker

    return make(target, build, progress)


def _place_hub(snapshots: Path) -> None:
    """Moves model repositories into the Hugging Face cache, where vLLM looks; each move is atomic."""
    from huggingface_hub import constants

    for source in sorted(path for path in snapshots.rglob("*") if path.is_file()):
        target = Path(constants.HF_HUB_CACHE) / source.relative_to(snapshots)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f".{target.name}.half")
        shutil.move(source, half)
        half.replace(target)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
