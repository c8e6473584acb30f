"""Makes lean bundles: omits what a machine with torch does not need, and makes wheels compress better."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import data_path
from vllm_harness._files.strict import StrictModel

_TIME = (1980, 1, 1, 0, 0, 0)  # the timestamp of each file in a wheel, so that bundles are reproducible


class LeanRules(StrictModel):
    """The content of `env/lean.yaml`.

    Attributes:
        packages: patterns for the names of packages to leave out.
        keep: names of packages to include even if a pattern matches.
        files: patterns for file paths to leave out of every wheel.
    """

    packages: tuple[str, ...]
    keep: tuple[str, ...]
    files: tuple[str, ...]

    def includes(self, requirement: str) -> bool:
        """Whether the bundle includes the package of a locked requirement."""
        name = requirement.partition("==")[0]
        return name in self.keep or not any(fnmatch(name, pattern) for pattern in self.packages)


def lean_rules() -> LeanRules:
    """Reads `env/lean.yaml`. Raises UsageError if it is malformed."""
    rules: LeanRules = read_yaml(data_path("env") / "lean.yaml").validated(LeanRules)
    return rules


def repack(wheels: Path, rules: LeanRules) -> None:
    """Rewrites each wheel in a folder uncompressed, and omits the files that the rules leave out.

    The bundle is compressed as a whole, which makes it much smaller than compressing each wheel does.
    """
    for wheel in sorted(wheels.glob("*.whl")):
        half = wheel.with_suffix(".half")
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(half, "w") as target:
            for info in source.infolist():
                if _is_left_out(info.filename, rules):
                    continue
                content = source.read(info)
                if info.filename.endswith(".dist-info/RECORD"):
                    content = _record(content, rules)
                plain = zipfile.ZipInfo(info.filename, _TIME)
                plain.external_attr = info.external_attr
                target.writestr(plain, content)
        half.replace(wheel)


def lock_of(requirements: Sequence[str], wheels: Path) -> str:
    """Returns the text of a lock file with the hashes of the wheels in a folder."""
    hashes = {}
    for wheel in wheels.glob("*.whl"):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        with wheel.open("rb") as file:
            hashes[name, str(version)] = hashlib.file_digest(file, "sha256").hexdigest()
    lines = []
    for requirement in requirements:
        pinned = re.match(r"(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<marker> ;[^\\]*)?", requirement)
        assert pinned, requirement
        key = canonicalize_name(pinned["name"]), pinned["version"]
        if key in hashes:  # a requirement without a wheel is for another platform
            lines.append(f"{pinned[0].rstrip()} --hash=sha256:{hashes[key]}")
    return "\n".join(lines) + "\n"


def _is_left_out(path: str, rules: LeanRules) -> bool:
    return any(fnmatch(path, pattern) for pattern in rules.files)


def _record(content: bytes, rules: LeanRules) -> bytes:
    lines = content.decode().splitlines(keepends=True)
    return "".join(line for line in lines if not _is_left_out(line.rsplit(",", 2)[0], rules)).encode()
