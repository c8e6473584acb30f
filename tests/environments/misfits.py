"""Prints, as JSON, where the vLLM of this interpreter differs from what the fork server expects."""

import ast
import inspect
import json
import textwrap
from typing import Any

from vllm_harness_patches import PATCHES, PLUGINS, Patch, found, is_for
from vllm_harness_preload import CALLED


def check(patch: Patch) -> None:
    """Raises if the replacement does not fit in place of the original."""
    original = found(patch.place)
    replacement = patch.make(original)
    expected, actual = (len(inspect.signature(function).parameters) for function in (original, replacement))
    assert expected == actual, f"it takes {expected} parameters, not {actual}"
    owner = getattr(inspect.getmodule(original), original.__qualname__.split(".")[0])
    if inspect.isclass(owner):
        lost = read_of_self(replacement) - {*owner.__init__.__code__.co_names}
        assert not lost, f"its object has no {', '.join(lost)}"


def called(place: str) -> None:
    """Raises if there is no function: a platform gives None for an unknown name."""
    assert callable(found(place)), "it is not a function"


def read_of_self(method: Any) -> set[str]:
    """Returns the attributes of `self` that a method reads or sets."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {
        attribute.attr
        for attribute in attributes
        if isinstance(attribute.value, ast.Name) and attribute.value.id == "self"
    }


misfits = {}
for place, releases, look in [
    *((patch.place, patch.releases, lambda patch=patch: check(patch)) for patch in PATCHES),
    *((place, releases, lambda place=place: called(place)) for place, releases in CALLED.items()),
    (PLUGINS, "", lambda: called(PLUGINS)),
]:
    try:
        if is_for(releases):
            look()
    except Exception as error:
        misfits[place] = repr(error)
print(json.dumps(misfits))
