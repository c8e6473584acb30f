"""An environment that sees the packages of another Python; only the standard library is imported here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def see_packages(folders: Iterable[str], environment: Path, name: str) -> None:
    """Does what `--system-site-packages` does, also for the packages of a virtual environment.

    Args:
        folders: site-packages of the other Python; what the environment has itself goes before them.
        environment: the folder of a virtual environment.
        name: of the file that says so, such as `over.pth`.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    text = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)
    path = packages / name
    if not path.exists() or path.read_text() != text:  # a Python may be starting there
        half = path.with_suffix(".half")
        half.write_text(text)
        half.replace(path)
