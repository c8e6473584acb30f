"""Which of vLLM's modules are to be imported anew where one of them has other code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from vllm_harness.regression.changed.imports import Import, Package


def direct_importers(package: Path) -> dict[str, set[str]]:
    """Of each module of vLLM's package, the modules that import it as soon as they are imported."""
    vllm = Package(package)
    modules = set(vllm.modules("vllm"))
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        source = vllm.source(module)
        for each in source.at_import if source else ():
            for imported in modules & set(_named(each)):
                found[imported].add(module)
    return found


def all_importers(module: str, direct: Mapping[str, set[str]]) -> list[str]:
    """The modules that import a module, or one that does, and so on; in the order of their names."""
    seen = {module}
    left = [module]
    while left:
        new = direct.get(left.pop(), set()) - seen
        seen |= new
        left += new
    return sorted(seen - {module})


def _named(each: Import) -> Iterator[str]:
    yield each.module
    if each.name:
        yield f"{each.module}.{each.name}"
