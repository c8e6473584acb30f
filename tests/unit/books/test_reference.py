"""The reference page of script books: every key has an example, which answers the request below it."""

from __future__ import annotations

import json
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.docs.blocks import ROOT, Block, blocks_of
from tests.unit.books.served import facts, outcome, served
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._scripted.book_check import check_book
from vllm_harness._scripted.book_file import BookFile, CallSpec, RuleSpec, SaySpec
from vllm_harness._scripted.when import MessageCondition, ToolResultCondition, When

PAGE = ROOT / "docs" / "reference" / "script-book.md"
BLOCKS = blocks_of(PAGE)
BOOKS = [block for block in BLOCKS if block.language == "yaml"]


def request_of(block: Block) -> dict[str, Any]:
    """Returns the facts about a request on the page."""
    start, _, rest = block.text.partition("\n")
    message = message_from_string(rest)
    headers = {name.lower(): value for name, value in message.items()}
    return facts(start.split()[1], json.loads(message.get_payload()), headers)


def book_file(block: Block, folder: Path) -> Path:
    """Writes a book from the page to a file."""
    path = folder / "book.yaml"
    path.write_text(block.text)
    return path


@pytest.mark.parametrize("block", BOOKS, ids=str)
def test_an_example_takes_the_request_below_it(block: Block, tmp_path: Path) -> None:
    path = book_file(block, tmp_path)
    args = ["--tool-server=demo"] if "turns:" in block.text else []
    book = check_book(path, load_models().get("qwen3"), args=args)
    assert book.lines() == []
    below = BLOCKS[BLOCKS.index(block) + 1]
    assert below.language == "http"
    assert outcome(served(book.rules), request_of(below)) == book.rules[0].name
    empty = facts("/v1/completions", {"prompt": ""})
    assert outcome(served(book.rules[:1]), empty).startswith("the nearest rule is")


@pytest.mark.parametrize("model", [RuleSpec, SaySpec, CallSpec, When, MessageCondition, ToolResultCondition])
def test_every_key_is_in_an_example(model: type[BaseModel]) -> None:
    keys = {field.alias or name for name, field in model.model_fields.items()}
    shown: set[str] = set()
    pending: list[Any] = [yaml.safe_load(block.text) for block in BOOKS]
    while pending:
        match pending.pop():
            case dict() as mapping:
                shown |= mapping.keys()
                pending += mapping.values()
            case list() as items:
                pending += items
    assert keys <= shown


@pytest.mark.parametrize("block", BOOKS, ids=str)
def test_the_schema_for_editors_accepts_the_examples(block: Block) -> None:
    validator = Draft202012Validator(BookFile.model_json_schema())
    book = yaml.safe_load(block.text)
    assert list(validator.iter_errors(book)) == []
    assert list(validator.iter_errors({"rules": [{**book["rules"][0], "wen": {}}]}))
