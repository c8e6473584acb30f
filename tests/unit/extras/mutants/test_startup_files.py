"""The startup file, which a server runs before it serves, replaces the code of functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vllm_harness.extras.mutants.startup_files import write_put

MODEL = """from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(defer_build=True)
    text: str

    def shown(self) -> str:
        return self.text
"""
FUNCTION = """def said():
    return "yes"
"""
SHOWN = """
from vllm.api import model, function
print(model.Answer(text="yes").shown(), function.said())
"""


def test_functions_of_several_files_are_replaced(tmp_path: Path) -> None:
    files = {"api/model.py": MODEL, "api/function.py": FUNCTION}
    for file, text in files.items():
        path = tmp_path / "vllm" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    changed = {
        file: text.replace("self.text", '"no"').replace('"yes"', '"no"') for file, text in files.items()
    }
    first, mark = write_put(tmp_path, changed)
    first.write_text(first.read_text() + SHOWN)
    output = subprocess.check_output(
        [sys.executable, str(first)], env={"PYTHONPATH": str(tmp_path)}, text=True
    )
    assert output.split() == ["no", "no"]
    assert mark.exists()
