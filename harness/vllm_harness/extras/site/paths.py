"""The paths of the pages and files of the site."""

from __future__ import annotations

_UNSAFE = str.maketrans("/@", "--")


def model_page(family: str) -> str:
    """The path of a family's page."""
    return f"models/{family.translate(_UNSAFE)}.md"


def model_feed(family: str) -> str:
    """The path of the feed of a family's changes."""
    return f"models/{family.translate(_UNSAFE)}.xml"


def defect_page(defect: str) -> str:
    """The path of a defect's page."""
    return f"defects/{defect}.md"


def release_page(version: str) -> str:
    """The path of a release's page."""
    return f"releases/{version}.md"


def rule_page(code: str) -> str:
    """The path of a rule's page in the manual."""
    return f"rules/{code}.md"


def report_file(defect: str) -> str:
    """The path of a defect's report."""
    return f"defects/{defect}/report.md.txt"


def script_file(defect: str) -> str:
    """The path of a defect's script."""
    return f"defects/{defect}/reproduce.py"
