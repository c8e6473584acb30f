"""Python files that need vLLM alone: a template of the folder `standalone`, with a defect's values put in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.defects.entry import Defect
from vllm_harness.scripted.standin import TOKENIZER_FILES

STANDALONE = Path(__file__).with_name("standalone")
PLUGIN = "tool_parser.py"
"""The file with a tool parser that is not vLLM's own."""
_FIRST_CONSTANT = re.compile(r"^(?=[A-Z_]+(?:, [A-Z_]+)* = )", re.MULTILINE)


def filled(template: Path, defect: Defect, how: str, constants: Mapping[str, Any], tokenizer: str) -> str:
    """The file of a defect.

    Args:
        template: its file; what is put in stands between its imports and its first constant.
        defect: whose title is its heading; what it expects and what comes are constants.
        how: what the file does, in sentences.
        constants: by name.
        tokenizer: hub id; empty where it is among the files.
    """
    imports, rest = _FIRST_CONSTANT.split(template.read_text(), maxsplit=1)
    expected = f"{defect.expected.text} ({defect.expected.source})" if defect.expected else ""
    every = {**constants, "EXPECTED": expected, "ACTUAL": defect.actual}
    values = "\n".join(f"{name} = {_literal(value)}" for name, value in every.items())
    chosen = f'TOKENIZER = os.environ.get("TOKENIZER", {tokenizer!r})  # a hub id, or a folder'
    return "\n".join([_heading(defect, how), f"{imports}{values}", chosen, rest])


def model_of(entry: ModelEntry) -> tuple[dict[str, Any], str]:
    """The files of a stand-in, by path, and the hub id of its tokenizer; empty where that is among them."""
    assert entry.stand_in is not None
    config = {"model/config.json": entry.stand_in.config}
    folder = Path(entry.stand_in.tokenizer)
    if not folder.is_absolute():
        return config, entry.hub.id
    there = (folder / name for name in TOKENIZER_FILES)
    return config | {f"model/{path.name}": _content(path) for path in there if path.exists()}, ""


def _content(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else text


def _heading(defect: Defect, how: str) -> str:
    title = defect.title.replace("\\", "\\\\").replace('"""', "'''")
    return (
        f'"""{title}.\n\n'
        "    python reproduce.py      # with the Python that has vLLM; a CPU will do\n\n"
        f'{how}\n"""\n'
    )


def _literal(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return repr(value) if ('"""' in value and "'''" in value) or "\\" in value else _triple(value)
    return pformat(value, width=110, sort_dicts=False)


def _triple(text: str) -> str:
    quotes = "'''" if '"""' in text else '"""'
    return f"{quotes}\\\n{text}{quotes}"
