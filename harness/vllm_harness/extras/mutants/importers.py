"""Finds the modules of vLLM that must be imported again if a module has changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from vllm_harness.extras.review.imports import Import, ModuleSource, Package

Importers = dict[str, list[str]]
"""Module -> the modules that import it when they are imported themselves."""


def importers_of(package: Path, cached: Path) -> Importers:
    """The importers in vLLM's package, read from a cache file, which is created if it is missing."""
    if not cached.exists():
        cached.write_text(json.dumps(direct_importers(package)))
    importers: Importers = json.loads(cached.read_text())
    return importers


def direct_importers(package: Path) -> Importers:
    """Finds the direct importers in the code of vLLM's package, which takes ten seconds."""
    vllm = Package(package)
    modules = set(vllm.modules("vllm"))
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for statement in _at_import(module, package / vllm.file(module)):
            for imported in modules & set(_names(statement)):
                importers[imported].add(module)
    return {module: sorted(names) for module, names in sorted(importers.items())}


def all_importers(module: str, direct: Importers) -> list[str]:
    """The modules that import a module, directly or through others, sorted by name."""
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


def _names(statement: Import) -> Iterator[str]:
    yield statement.module
    if statement.name:
        yield f"{statement.module}.{statement.name}"
