"""Every error of the package derives from HarnessError, and `vllm_harness.errors` lists it below its base."""

from __future__ import annotations

import ast
from pathlib import Path

import vllm_harness
from vllm_harness import errors

PACKAGE = Path(vllm_harness.__file__).parent
ALONE = (
    "scripted/in_server/",
    "regression/workers/",
    "server/vllm_harness_template.py",
    "bundles/install.py",
)
"""Code that runs without the harness."""


def _classes() -> dict[str, list[str]]:
    """Classes of the package with the names of their bases."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(ALONE):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return found


def _listed() -> dict[str, str]:
    """The classes in the docstring of `vllm_harness.errors`, with the class that each is indented below."""
    assert errors.__doc__
    found: dict[str, str] = {}
    above = [("", -1)]
    for line in errors.__doc__.splitlines()[1:]:
        names = [word.rstrip(",") for word in line.split() if word.rstrip(",").isidentifier()]
        names = [name for name in names if name[0].isupper()]
        indent = len(line) - len(line.lstrip())
        if not names or indent < 4:
            continue
        while above[-1][1] >= indent:
            above.pop()
        found |= dict.fromkeys(names, above[-1][0])
        above.append((names[0], indent))
    return found


def test_every_error_is_in_the_hierarchy_and_listed() -> None:
    classes, known = _classes(), {"HarnessError"}
    while more := {name for name, bases in classes.items() if known & {*bases}} - known:
        known |= more
    listed = _listed()
    assert known == set(listed)
    assert all(listed[name] in classes[name] for name in known - {"HarnessError"})


def test_no_other_class_derives_from_exceptions_than_failures_of_tests() -> None:
    others = {name for name, bases in _classes().items() if {"Exception", "BaseException"} & {*bases}}
    assert others == {"HarnessError"}
