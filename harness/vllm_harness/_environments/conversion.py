"""Converts files from package registries to the formats that servers read."""

from __future__ import annotations

import json
from pathlib import Path

from vllm_harness._environments.installer import remedy
from vllm_harness._environments.overlay import overlay
from vllm_harness._environments.sources import AssetError
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.status import Progress

_SCRIPT = Path(__file__).with_name("gguf_to_checkpoint.py")


def tiktoken_ranks(encoding: Path, folder: Path) -> Path:
    """Converts an encoding of the JavaScript package tiktoken to a `.tiktoken` file with the same name.

    The lines of an encoding's `bpe_ranks` are `! OFFSET TOKEN TOKEN ...`; those of a `.tiktoken` file are
    `TOKEN RANK`.
    """
    target = folder / f"{encoding.stem}.tiktoken"
    ranks = []
    for line in json.loads(encoding.read_text())["bpe_ranks"].splitlines():
        _, offset, *tokens = line.split()
        ranks += [(int(offset) + index, token) for index, token in enumerate(tokens)]
    target.write_text("".join(f"{token} {rank}\n" for rank, token in sorted(ranks)))
    return target


def gguf_checkpoint(gguf: Path, folder: Path, environment: Environment, progress: Progress) -> None:
    """Converts a GGUF file to a bf16 checkpoint with the transformers package of a server environment.

    The packages in env/gguf.lock are added for this process only. Raises AssetError and InstallError.
    """
    packages = overlay("gguf", environment, progress)
    progress("converting the GGUF file to a checkpoint")
    answer = environment.run(str(_SCRIPT), str(gguf), str(folder), pythonpath=[packages])
    if answer.returncode:
        last = "\n    ".join(answer.stderr.strip().splitlines()[-4:])
        raise AssetError(
            f"{environment.describe()} cannot convert {gguf.name}:\n    {last}",
            hint=remedy(answer.stderr) or "run `vllm-harness env verify`, which checks that environment",
        )
