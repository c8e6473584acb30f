"""Every rule has a finding in its bad example and none in its good example, and its page is up to date."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import vllm_harness._protocol
from vllm_harness._extensions import rule_modules
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.explain import findings_of, pages
from vllm_harness._protocol.rules import AREAS, RULE_MODULES, RULES, UNCOVERED

PAGES = Path(__file__).parents[3] / "docs" / "rules"
FOLDER = Path(vllm_harness._protocol.__file__).parent
MODULES = (*RULE_MODULES, *rule_modules())
FOLDERS = (FOLDER, *(Path(module.__file__).parent for module in rule_modules()))
CODE = re.compile(rf"(?:{'|'.join(AREAS)})\d{{3}}")
# Codes that occur in the code only as data of samples.
EXAMPLES_OF_CODES = {"IT103"}


def _checks() -> dict[str, ast.Module]:
    """The syntax trees of all modules except those that declare the rules."""
    rule_files = {module.__file__ for module in MODULES}
    files = [
        path for folder in FOLDERS for path in sorted(folder.rglob("*.py")) if str(path) not in rule_files
    ]
    return {str(path.relative_to(FOLDER.parent)): ast.parse(path.read_text()) for path in files}


CHECKS = _checks()


@pytest.mark.parametrize("code", RULES)
def test_bad_example_is_found(code: str) -> None:
    findings = [finding for finding in findings_of(RULES[code].bad) if finding.code == code]
    assert findings, "the rule does not find its bad example"
    assert RULES[code].severity in {finding.severity for finding in findings}


@pytest.mark.parametrize("code", RULES)
def test_good_example_is_clean(code: str) -> None:
    findings = findings_of(RULES[code].good)
    assert code not in [finding.code for finding in findings]
    assert not [str(finding) for finding in findings if finding.counts]


def test_every_rule_has_the_name_of_its_code() -> None:
    for module in MODULES:
        named = {name: value.code for name, value in vars(module).items() if isinstance(value, Rule)}
        assert named == {code: code for code in named.values()}


def test_every_rule_is_used_and_only_as_an_object() -> None:
    used, strings = set[str](), set[str]()
    for tree in CHECKS.values():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name) if CODE.fullmatch(name):
                    used.add(name)
                case ast.Constant(value=str(text)) if CODE.fullmatch(text):
                    strings.add(text)
    assert used == set(RULES)
    assert strings <= EXAMPLES_OF_CODES


@pytest.mark.parametrize("file", CHECKS)
def test_every_finding_has_the_facts_of_its_message(file: str) -> None:
    functions = [node for node in ast.walk(CHECKS[file]) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            facts = {keyword.arg for keyword in call.keywords}
            facts |= {"key"} if name == "check_fields" else set()
            for code in codes_given(call, function) if name in ("add", "finding", "check_fields") else ():
                wanted = {place for _, place, _, _ in Formatter().parse(RULES[code].message) if place}
                assert wanted <= facts, f"{code} in line {call.lineno} of {file}"


def codes_given(call: ast.Call, function: ast.FunctionDef) -> set[str]:
    """The codes of the rules in a call: in its arguments, in its object, or in variables of the function."""
    given = set[str]()
    for node in (*call.args, getattr(call.func, "value", None)):
        if isinstance(node, ast.Name) and not CODE.fullmatch(node.id):
            for source in values_of(node.id, function):
                given |= codes_in(source)
        elif isinstance(node, ast.Name | ast.Attribute):
            given |= codes_in(node)
    return given


def values_of(name: str, function: ast.FunctionDef) -> list[ast.expr]:
    """The expressions that a function binds to one of its variables."""
    values = []
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = {leaf.id for top in targets if top for leaf in ast.walk(top) if isinstance(leaf, ast.Name)}
        if name in names and isinstance(node, ast.Assign | ast.For):
            values.append(node.value if isinstance(node, ast.Assign) else node.iter)
    return values


def codes_in(value: ast.expr) -> set[str]:
    """The codes of the rules in an expression."""
    names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(value)}
    return {name for name in names if CODE.fullmatch(name)}


def test_imports_point_one_way() -> None:
    packages = ("core", "responses", "chat", "messages", "conversation")
    rank = {"core": 0, "responses": 1, "chat": 1, "messages": 1, "conversation": 2}
    for path in sorted(FOLDER.rglob("*.py")):
        package = path.relative_to(FOLDER).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("vllm_harness"):
                continue
            if node.module in ("vllm_harness._errors", "vllm_harness._extensions"):
                assert path.name in ("errors.py", "rules.py", "explain.py")
                continue
            inner = str(node.module).removeprefix("vllm_harness._protocol").lstrip(".").split(".")[0]
            names = [inner] if inner else [alias.name for alias in node.names]
            assert str(node.module).startswith("vllm_harness._protocol"), f"{path}: {node.module}"
            for name in names if package in packages else ():
                allowed = name == package or rank.get(name, 3) < rank[package]
                assert allowed, f"{path.relative_to(FOLDER)} imports {name}"


def test_every_area_is_named() -> None:
    assert {code[:2] for code in RULES} == set(AREAS) - UNCOVERED


def test_pages_are_current() -> None:
    written = {path.name: path.read_text() for path in PAGES.glob("*.md")}
    if UNCOVERED:
        pytest.skip(f"the rules of {', '.join(UNCOVERED)} belong to an extra that is not installed")
    assert written == pages(), "run: vllm-harness validate explain --output docs/rules"
