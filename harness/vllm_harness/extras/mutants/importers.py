"""Which of vLLM's modules are to be imported anew where one of them has other code."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from vllm_harness.extras.review.imports import Import, ModuleSource, Package

Importers = dict[str, list[str]]
"""Of each module, the modules that import it as soon as they are imported."""


def importers_of(package: Path, kept: Path) -> Importers:
    """The importers in vLLM's package, read from a file where it is there, and kept there where not."""
    if not kept.exists():
        kept.write_text(json.dumps(direct_importers(package)))
    found: Importers = json.loads(kept.read_text())
    return found


def direct_importers(package: Path) -> Importers:
    """The importers in vLLM's package, from its code, which takes ten seconds."""
    vllm = Package(package)
    modules = set(vllm.modules("vllm"))
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for each in _at_import(module, package / vllm.file(module)):
            for imported in modules & set(_named(each)):
                found[imported].add(module)
    return {module: sorted(importers) for module, importers in sorted(found.items())}


def all_importers(module: str, direct: Importers) -> list[str]:
    """The modules that import a module, or one that does, and so on; in the order of their names."""
    seen = {module}
    left = [module]
    while left:
        new = set(direct.get(left.pop(), ())) - seen
        seen |= new
        left += new
    return sorted(seen - {module})


def _at_import(module: str, path: Path) -> tuple[Import, ...]:
    try:
        return ModuleSource(module, path).at_import
    except SyntaxError:
        return ()


def _named(each: Import) -> Iterator[str]:
    yield each.module
    if each.name:
        yield f"{each.module}.{each.name}"
