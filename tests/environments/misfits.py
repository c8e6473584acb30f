"""Prints as JSON the functions of the running interpreter's vLLM that do not fit the fork server."""

import ast
import inspect
import json
import textwrap
from typing import Any

from vllm_harness_patches import PATCHES, PLUGINS, Patch, is_for, lookup
from vllm_harness_preload import CALLED


def check(patch: Patch) -> None:
    """Raises AssertionError if the replacement cannot stand in for the original."""
    original = lookup(patch.place)
    replacement = patch.make(original)
    given, taken = (len(inspect.signature(each).parameters) for each in (original, replacement))
    assert given == taken, f"it takes {given} parameters, not {taken}"
    owner = getattr(inspect.getmodule(original), original.__qualname__.split(".")[0])
    if inspect.isclass(owner):
        lost = read_of_self(replacement) - {*owner.__init__.__code__.co_names}
        assert not lost, f"its object has no {', '.join(lost)}"


def called(place: str) -> None:
    """Raises AssertionError if there is no function at a place: platforms have None for names they lack."""
    assert callable(lookup(place)), "it is not a function"


def read_of_self(method: Any) -> set[str]:
    """The attributes of `self` that a method reads or sets."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {each.attr for each in attributes if isinstance(each.value, ast.Name) and each.value.id == "self"}


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
