"""Writes the Python files that servers run before they serve: they load a mutant, or watch lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.mutant import ServingMutant
from vllm_harness.extras.mutants.parsers.mutants import MUTANT_WORKERS, module_of

IN_SERVER = Path(__file__).with_name("in_server")
MOST_IMPORTERS = 400
"""A module with more importers has kernels among them, which cannot be imported twice."""


def write_changed(folder: Path, mutant: ServingMutant, importers: Sequence[str]) -> tuple[Path, Path]:
    """Writes the file that loads a mutant.

    It imports the mutated module and its importers again. If these are too many, it replaces the code of the
    module's functions instead.

    Returns:
        The file, and the file that it makes once the mutant is loaded.

    Raises:
        UsageError: the module has too many importers, and the mutant changes what runs on import.
    """
    code, first, mark = folder / "code.py", folder / "first.py", folder / "loaded"
    module = module_of(mutant.file).removesuffix(".__init__")
    if len(importers) <= MOST_IMPORTERS:
        code.write_text(mutant.code)
        call = f"load_changed({module!r}, {str(code)!r}, {list(importers)!r}, {str(mark)!r})"
        first.write_text(_script(IN_SERVER, "from vllm_harness_changed import load_changed", call))
    elif mutant.span is not None:
        return write_put(folder, {mutant.file: mutant.code})
    else:
        raise UsageError(f"too many modules import {mutant.file} to change what runs on its import")
    return first, mark


def write_put(folder: Path, codes: Mapping[str, str]) -> tuple[Path, Path]:
    """Writes the file that replaces the code of the functions in vLLM's files; code run on import stays.

    Args:
        folder: where the file and the code are written.
        codes: path below the package -> the whole new text; each function must begin on the same line.

    Returns:
        The file, and the file that it makes once the code is replaced.
    """
    first, mark = folder / "first.py", folder / "loaded"
    calls = []
    for number, (file, text) in enumerate(codes.items()):
        code = folder / f"code{number}.py"
        code.write_text(text)
        calls.append(f"put({module_of(file).removesuffix('.__init__')!r}, {str(code)!r})")
    call = "\n".join([*calls, f"Path({str(mark)!r}).touch()"])
    imports = "from pathlib import Path\nfrom vllm_harness_mutant import put"
    first.write_text(_script(MUTANT_WORKERS, imports, call))
    return first, mark


def write_watched(folder: Path, package: Path, files: Sequence[str]) -> tuple[Path, Path, Mapping[str, int]]:
    """Writes the file that watches lines.

    Returns:
        The file, the memory in which servers mark the lines, and file -> the place of its line 0 there.
    """
    starts, end = {}, 0
    for file in files:
        starts[file] = end
        end += len((package / file).read_bytes().splitlines()) + 2
    memory, first = folder / "memory", folder / "first.py"
    memory.write_bytes(bytes(end))
    paths = {str(package / file): start for file, start in starts.items()}
    call = f"watch({paths!r}, {str(memory)!r})"
    first.write_text(_script(IN_SERVER, "from vllm_harness_lines import watch", call))
    return first, memory, starts


def _script(folder: Path, imports: str, call: str) -> str:
    return f"import sys\n\nsys.path.append({str(folder)!r})\n{imports}\n\n{call}\n"
