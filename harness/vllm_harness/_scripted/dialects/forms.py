"""Reads the dialects that are defined by data: each file in formats/ maps names of dialects to their `Form`.

In a file, `<<: *NAME` copies all fields of another dialect or part, and the fields next to it override them.
`source` names the document that describes the format. "from memory" marks a format that was written without
consulting that document; `source` also says when the format is known only from one of vLLM's parsers.
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
"""The content of a file in formats/."""


@cache
def load_forms(folder: Path = FOLDER) -> dict[str, Form]:
    """Reads the forms in all files of a folder, by name.

    Raises:
        UsageError: a file is not valid; the message names the file, line and key.
    """
    forms: dict[str, Form] = {}
    for path in sorted(folder.glob("*.yaml")):
        further = read_yaml(path).validated(FORMS)
        if twice := forms.keys() & further.keys():
            raise UsageError(f"{path}: another file in the folder also defines the dialect {min(twice)!r}")
        forms |= further
    return forms
