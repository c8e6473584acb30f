"""How mutants are applied to files, and which statements they change; without vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.mutant import HandMutant, applied, load_by_hand, of_library
from vllm_harness.extras.mutants.parsers.mutants import Mutant
from vllm_harness.extras.review.serving import SERVING, changed_statements, serving_files

FILE = "entrypoints/anthropic/serving.py"
CODE = """LIMIT = 3


class Server:
    size: int = 2

    def answer(self, text):
        # what comes back
        if text:
            text = (
                text
                + "!"
            )
        else:
            text = "?"
        return text
"""


def by_hand(old: str, new: str, **keys: str) -> HandMutant:
    return HandMutant(id="m", file=FILE, old=old, new=new, what="another answer", **keys)


def package(folder: Path, code: str = CODE) -> Path:
    path = folder / FILE
    path.parent.mkdir(parents=True)
    path.write_text(code)
    return folder


@pytest.mark.parametrize(
    ("old", "new", "span"),
    [
        ('                + "!"\n', "", (10, 13)),  # the whole statement that contains the line
        ("        if text:\n", "        if not text:\n", (9, 9)),  # the head without its body
        ("        else:\n", "        elif text is None:\n", (14, 14)),  # a line outside any statement
        ("        return text\n", "        text += text\n        return text\n", (15, 16)),  # an insertion
        ("        # what comes back\n", "        text = str(text)\n", (9, 9)),  # in place of a comment
        ("LIMIT = 3", "LIMIT = 4", None),
        ("size: int = 2", "size: int = 3", None),
        ("def answer(self, text):", 'def answer(self, text="."):', None),
    ],
)
def test_a_mutant_changes_the_statements_around_its_lines(
    old: str, new: str, span: tuple[int, int] | None
) -> None:
    assert CODE.count(old) == 1
    assert changed_statements(CODE, old, new) == span


def test_a_mutant_is_applied_if_its_text_occurs_once(tmp_path: Path) -> None:
    folder = package(tmp_path)
    changed = applied(by_hand('"?"', '""'), folder)
    assert changed is not None
    assert changed.code == CODE.replace('"?"', '""')
    assert (changed.kind, changed.span) == ("by hand", (15, 15))
    shorter = applied(by_hand('                + "!"\n', ""), folder)
    assert shorter is not None
    assert [number for number, line in enumerate(shorter.code.splitlines(), 1) if "return" in line] == [16]
    assert changed.change == '- "?"\n+ ""'
    assert applied(by_hand("text", "word"), folder) is None
    assert applied(by_hand("nowhere", "here"), folder) is None
    assert applied(by_hand('"?"', '""', fixed_in="0.30.0"), folder).kind == "reverted"  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="the mutant m does not leave valid Python"):
        applied(by_hand("        return text", "    return ("), folder)


def test_the_digest_depends_on_the_changed_text(tmp_path: Path) -> None:
    folder = package(tmp_path)
    mutants = [applied(by_hand('"?"', new), folder) for new in ('""', '"."', '""')]
    digests = [mutant.digest for mutant in mutants if mutant]
    assert digests[0] == digests[2] != digests[1]


def test_mutants_of_the_library_have_unique_ids() -> None:
    made = [
        Mutant(line=9, statement=(9, 9), operator="AddNot", change=change, code=change)
        for change in ("- a\n+ b", "- a\n+ c")
    ]
    first, second = (of_library(mutant, FILE) for mutant in made)
    assert first.id.startswith(f"{FILE}:9 AddNot ")
    assert first.id != second.id
    assert (first.kind, first.span) == ("library", (9, 9))


@pytest.mark.parametrize(
    "keys",
    [
        {"new": "a"},
        {"upstream": "vllm#1"},
        {"equivalent": "the same", "survives": "no test has it"},
    ],
)
def test_a_mutant_that_contradicts_itself_is_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        HandMutant.model_validate({"id": "m", "file": FILE, "old": "a", "new": "b", "what": "w", **keys})


def test_a_malformed_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("mutants:\n- id: m\n  file: f.py\n  old: a\n  nwe: b\n  what: w\n")
    with pytest.raises(UsageError, match=r"a\.yaml:"):
        load_by_hand(tmp_path)
    text = "- {id: m, file: f.py, old: a, new: b, what: w}\n"
    (tmp_path / "a.yaml").write_text("mutants:\n" + text + text)
    with pytest.raises(UsageError, match="the id m is taken"):
        load_by_hand(tmp_path)


def test_the_mutants_of_the_package_change_serving_code_and_are_sorted() -> None:
    from fnmatch import fnmatchcase

    every = load_by_hand()
    reverted = [mutant for mutant in every if mutant.fixed_in and not mutant.known_survivor]
    surviving = [mutant for mutant in every if mutant.known_survivor]
    assert len(every) >= 120
    assert every[: len(reverted)] == reverted
    assert surviving
    assert every[-len(surviving) :] == surviving
    strays = [mutant.id for mutant in every if not any(fnmatchcase(mutant.file, each) for each in SERVING)]
    assert not strays


def test_serving_files_match_the_patterns(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "parser").mkdir()
    for name in ("harmony.py", "kimi_k2.py"):
        (folder / "parser" / name).touch()
    assert serving_files(folder) == [FILE, "parser/harmony.py"]
