"""Checks that every error class derives from HarnessError, and that `_errors` lists it below its base."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import vllm_harness
from vllm_harness import _errors
from vllm_harness._testing.options import OPTIONS

PACKAGE = Path(vllm_harness.__file__).parent
ALONE = (
    "_scripted/in_server/",
    "_regression/workers/",
    "_server/forking/",
    "extras/costs/workers/",
    "extras/mutants/workers/",
    "extras/bundles/install.py",
)
"""The code that runs without the harness installed."""
FRONT_DOORS = ("cli/", "_testing/", "pytest_plugin.py", "_regression/selection.py", "extras/")
"""Code that only the command line or only pytest runs, which may therefore name that side's options."""


@cache
def _classes() -> dict[str, list[str]]:
    """The classes in the package, with the names of their bases."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(ALONE):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return found


def _listed() -> dict[str, str]:
    """The error classes in the docstrings of `_errors` and `extras`, each with the class above it."""
    extras = find_spec("vllm_harness.extras") and import_module("vllm_harness.extras").__doc__
    found: dict[str, str] = {}
    above = [("", -1)]
    for line in f"{_errors.__doc__}\n{extras or ''}".splitlines():
        names = [word.rstrip(",") for word in line.split() if word.rstrip(",").isidentifier()]
        names = [name for name in names if name[0].isupper()]
        indent = len(line) - len(line.lstrip())
        if not names or indent < 4:
            continue
        while above[-1][1] >= indent:
            above.pop()
        found = (
            dict.fromkeys(names, above[-1][0]) | found
        )  # the first docstring counts for a class that both name
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


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the strings in a module and their lines, except for docstrings; f-strings as source code."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {ast.get_docstring(node, clean=False) for node in nodes if isinstance(node, documented)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.JoinedStr():
                yield node.lineno, ast.unparse(node)
            case ast.Constant(value=str(text)) if id(node) not in parts and text not in docs:
                yield node.lineno, text


def test_what_both_front_doors_say_names_no_option_that_only_one_has() -> None:
    """`--lane` is `--vllm-lane` in pytest, so messages of shared code must not name options."""
    names = "|".join(["vllm", *(name.removeprefix("--vllm-") for name in OPTIONS)])
    option = re.compile(rf"(?:^|[ (])--(?:{names})(?![\w-])")
    named = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if not path.relative_to(PACKAGE).as_posix().startswith((*FRONT_DOORS, *ALONE))
        for line, text in _strings(path)
        if " " in text and option.search(text) and "vllm-harness " not in text
    ]
    assert named == []
