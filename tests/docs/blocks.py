"""The fenced code blocks in the README and the manual."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))
RULES = ROOT / "docs" / "rules"

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced code block on a page.

    Attributes:
        page: the path of the page, relative to the repository.
        line: the number of the block's first line, below its fence.
        language: the first word after the opening fence.
        text: the text between the fences.
        follows: the previous block if no text is between the two, as with a command and its output.
    """

    page: str
    line: int
    language: str
    text: str
    follows: Block | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def has_tests(self) -> bool:
        """Whether the block is Python code with test functions."""
        return self.language == "python" and re.search(r"^(async )?def test_", self.text, re.M) is not None

    def tree(self) -> ast.Module:
        """The syntax tree of the Python code; its line numbers and file name are those of the page."""
        tree = ast.parse(self.text, filename=str(ROOT / self.page))
        return ast.increment_lineno(tree, self.line - 1)

    def commands(self) -> Iterator[str]:
        """The command lines; a line that ends with a backslash is joined with the next one."""
        text = self.text.replace("\\\n", " ")
        return (line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))


def blocks_of(path: Path) -> list[Block]:
    """The fenced code blocks on a page, in order."""
    text, found, end = path.read_text(), list[Block](), 0
    for match in _FENCE.finditer(text):
        between = text[end : match.start()].strip()
        follows = found[-1] if found and not between else None
        language = (match["info"].split() or [""])[0]
        line = text.count("\n", 0, match.start("text")) + 1
        found.append(Block(str(path.relative_to(ROOT)), line, language, match["text"], follows))
        end = match.end()
    return found


BLOCKS = tuple(block for page in PAGES if RULES not in page.parents for block in blocks_of(page))


def written_in(language: str) -> list[Block]:
    """The blocks in a language."""
    return [block for block in BLOCKS if block.language == language]
