"""Prints, as JSON, the patches and calls of the fork server that do not fit the vLLM of this interpreter."""

import ast
import inspect
import json
import textwrap
from typing import Any

from vllm_harness_patches import PATCHES, PLUGINS, Patch, found, is_for
from vllm_harness_preload import CALLED


def check(patch: Patch) -> None:
    """Raises if the replacement does not fit the original."""
    original = found(patch.place)
    replacement = patch.make(original)
    expected, actual = (len(inspect.signature(function).parameters) for function in (original, replacement))
    assert expected == actual, f"it takes {expected} parameters, not {actual}"
    owner = getattr(inspect.getmodule(original), original.__qualname__.split(".")[0])
    if inspect.isclass(owner):
        missing = attributes_of_self(replacement) - {*owner.__init__.__code__.co_names}
        assert not missing, f"its object has no {', '.join(missing)}"


def check_callable(place: str) -> None:
    """Raises if there is no function; a platform has None for a missing name."""
    assert callable(found(place)), "it is not a function"


def attributes_of_self(method: Any) -> set[str]:
    """The attributes of `self` that a method reads or sets."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "self"}


misfits = {}
for place, releases, look in [
    *((patch.place, patch.releases, lambda patch=patch: check(patch)) for patch in PATCHES),
    *((place, releases, lambda place=place: check_callable(place)) for place, releases in CALLED.items()),
    (PLUGINS, "", lambda: check_callable(PLUGINS)),
]:
    try:
        if is_for(releases):
            look()
    except Exception as error:
        misfits[place] = repr(error)
print(json.dumps(misfits))
