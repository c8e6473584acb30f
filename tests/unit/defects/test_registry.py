"""Tests the defect registry: reading entries, and their versions, models and known deviations."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._defects import registry
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import DefectsError, find, known_deviations, load_defects

MINIMAL = "id: vllm-1\ntitle: It is wrong\nclass: defect\n"


def load(folder: Path, text: str, name: str = "vllm-1") -> Defect:
    """Writes the file of a defect entry and loads the registry."""
    (folder / f"{name}.yaml").write_text(text)
    return load_defects(folder)[name]


def entry(**more: object) -> Defect:
    """Returns a minimal defect entry."""
    return Defect.model_validate({"id": "vllm-1", "title": "It is wrong", "class": "defect", **more})


@pytest.mark.parametrize(
    ("version", "model", "holds"),
    [
        ("0.32.0", "qwen3", True),
        ("0.33.0", "qwen3", False),
        ("0.32.1rc1", "qwen3", True),
        ("0.32.0", "gpt-oss", False),
        ("0.32.0", "", True),
    ],
)
def test_a_defect_holds_for_its_versions_and_models(version: str, model: str, holds: bool) -> None:
    assert entry(versions=">=0.22,<0.33", models=["qwen3"]).holds_for(version, model) is holds


def test_a_defect_without_models_and_versions_holds_for_all() -> None:
    assert entry().holds_for("0.32.0", "any")


def test_the_pattern_matches_type_and_message() -> None:
    assert entry(pattern="AssertionError: .*'null'").shown_by(AssertionError("status\nis 'null'"))
    assert not entry(pattern="AssertionError: .*null").shown_by(ValueError("null"))


def test_known_deviations_have_models_and_versions() -> None:
    place = {"code": "RS212", "path": "$.response.output[*].status", "kind": "reasoning"}
    narrow = {**place, "code": "IT103", "models": ["gpt-oss"], "versions": ">=0.30"}
    defects = {"vllm-1": entry(versions=">=0.22", deviations=[place, narrow])}
    assert [known.code for known in known_deviations("gpt-oss", "0.32.0", defects)] == ["RS212", "IT103"]
    assert [known.code for known in known_deviations("qwen3", "0.32.0", defects)] == ["RS212"]
    assert [known.code for known in known_deviations("gpt-oss", "0.22.0", defects)] == ["RS212"]
    assert not known_deviations("gpt-oss", "0.21.0", defects)
    (first, _) = known_deviations("gpt-oss", "0.32.0", defects)
    assert (first.reference, first.kind, first.note) == ("vllm-1", "reasoning", "It is wrong")


def test_a_project_adds_entries(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).title == "It is wrong"
    assert len(load_defects(tmp_path)) == len(load_defects()) + 1


def test_entries_are_read_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(registry, "_read", lambda path: read.append(path.stem))
    defects = registry.load_defects.__wrapped__()
    assert "vllm-46940" in defects
    assert len(defects) == len(list(defects)) > 600
    defects["vllm-46940"]
    assert read == ["vllm-46940"]


def test_the_nearest_ids_are_named() -> None:
    with pytest.raises(DefectsError, match="no defect has the id 'vllm#4694'") as raised:
        find("vllm#4694", load_defects())
    assert "vllm-46940" in raised.value.hint


BAD = {
    "unknown key": (MINIMAL + "clas: x\n", r"vllm-1.yaml:4: clas: unknown key, did you mean 'class'\?"),
    "no title": ("id: vllm-1\nclass: defect\n", r"vllm-1.yaml:1: title: Field required"),
    "wrong class": (MINIMAL.replace("defect\n", "bug\n"), r"vllm-1.yaml:3: class: Input should be 'defect'"),
    "wrong id": (MINIMAL.replace("vllm-1", "vllm#1"), r"vllm-1.yaml:1: id: use lower-case letters"),
    "another file's id": (
        MINIMAL.replace("vllm-1", "vllm-2"),
        r"vllm-1.yaml:1: id: vllm-2 differs from the name",
    ),
    "wrong versions": (
        MINIMAL + "versions: up to 0.32\n",
        r"vllm-1.yaml:4: versions: not a version specifier",
    ),
    "wrong pattern": (MINIMAL + "pattern: '('\n", r"vllm-1.yaml:4: pattern: invalid regular expression"),
    "judged without a search": (MINIMAL + "judged: 2026-11-23\n", r"say how upstream was searched"),
    "unknown rule": (
        MINIMAL + "deviations:\n- {code: XX999, path: $}\n",
        r"vllm-1.yaml:5: deviations.0.code: no rule has the code 'XX999'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_file_is_an_error(case: str, tmp_path: Path) -> None:
    text, message = BAD[case]
    with pytest.raises(DefectsError, match=message) as raised:
        load(tmp_path, text)
    assert raised.value.exit_code == 2


def test_a_duplicate_id_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DefectsError, match="another entry has the id vllm-46940"):
        load(tmp_path, MINIMAL.replace("vllm-1", "vllm-46940"), "vllm-46940")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DefectsError, match="does not exist"):
        load_defects(tmp_path / "none")
