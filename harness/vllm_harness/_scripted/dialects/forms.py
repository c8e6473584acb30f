"""The dialects that are data: every file in formats/ maps names of dialects to their `Form`.

In a file `<<: *NAME` takes all fields of another dialect or part, and the fields beside it replace them.
`source` says where the format is published: "from memory" marks a format that was written down without the
document at hand, and where only a parser of vLLM shows a format, it says so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import with_names
from vllm_harness._scripted.dialects.form import Form

FOLDER = Path(__file__).with_name("formats")
FORMS: TypeAdapter[dict[str, Form]] = TypeAdapter(Annotated[dict[str, Form], BeforeValidator(with_names)])
"""What a file in formats/ holds."""


@cache
def load_forms(folder: Path = FOLDER) -> dict[str, Form]:
    """The forms of all files of a folder, by name.

    Raises:
        UsageError: naming file, line and key.
    """
    forms: dict[str, Form] = {}
    for path in sorted(folder.glob("*.yaml")):
        found = read_yaml(path).validated(FORMS)
        if twice := forms.keys() & found.keys():
            raise UsageError(f"{path}: another file of the folder has a dialect {min(twice)!r} too")
        forms |= found
    return forms
