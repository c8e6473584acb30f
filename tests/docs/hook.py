"""Loads the mkdocs hook that generates pages from the code."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

from tests.docs.blocks import ROOT


@cache
def load_hook() -> ModuleType:
    """Loads the hook's module, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "hooks" / "generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def generated_pages(folder: str = "") -> dict[str, str]:
    """The texts of the generated pages below a folder, by path."""
    return {path: text for path, text in load_hook().pages().items() if path.startswith(folder)}
