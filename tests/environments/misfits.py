"""Prints as JSON what the fork server does not find as expected in the vLLM whose interpreter runs this."""

import ast
import inspect
import json
import textwrap
from typing import Any

from vllm_harness_patches import PATCHES, PLUGINS, Patch, is_for, lookup
from vllm_harness_preload import CALLED


def check(patch: Patch) -> None:
    """Raises where the replacement does not fit in the place of the original."""
    original = lookup(patch.place)
    replacement = patch.make(original)
    given, taken = (len(inspect.signature(each).parameters) for each in (original, replacement))
    assert given == taken, f"it takes {given} parameters, not {taken}"
    owner = getattr(inspect.getmodule(original), original.__qualname__.split(".")[0])
    if inspect.isclass(owner):
        lost = read_of_self(replacement) - {*owner.__init__.__code__.co_names}
        assert not lost, f"its object has no {', '.join(lost)}"


def called(place: str) -> None:
    """Raises where there is no function: a platform gives None for a name that it does not have."""
    assert callable(lookup(place)), "it is not a function"


def read_of_self(method: Any) -> set[str]:
    """The attributes of its object that a method reads or sets."""
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
