"""Writes Python files that servers run before they serve, to load a mutant or to watch lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.mutant import ServingMutant
from vllm_harness.extras.mutants.parsers.mutants import MUTANT_WORKERS, module_of

IN_SERVER = Path(__file__).with_name("in_server")
MOST_IMPORTERS = 400
"""If a module has more importers than this, some of them load kernels, which cannot be imported twice."""


def write_changed(folder: Path, mutant: ServingMutant, importers: Sequence[str]) -> tuple[Path, Path]:
    """Writes the startup file that loads a mutant.

    The startup file imports the mutated module and its importers again. If there are too many importers, it
    replaces the code of the module's functions instead.

    Returns:
        The startup file, and the file that it creates once the mutant is loaded.

    Raises:
        UsageError: the module has too many importers, and the mutant changes code that runs on import.
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
        raise UsageError(f"too many modules import {mutant.file} to change code that runs on its import")
    return first, mark


def write_put(folder: Path, codes: Mapping[str, str]) -> tuple[Path, Path]:
    """Writes the startup file that replaces the code of functions in vLLM's files, but no other code.

    Args:
        folder: the folder in which the startup file and the new code are written.
        codes: path in vLLM's package -> the new code of the file; each function must begin on the same line.

    Returns:
        The startup file, and the file that it creates once the code is replaced.
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
    """Writes the startup file that watches lines.

    Returns:
        The startup file, the file in which servers mark lines, and file -> the position of its line 0 there.
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
