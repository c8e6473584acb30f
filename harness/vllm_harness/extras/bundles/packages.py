"""Makes the packages of another Python importable in an environment; needs only the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def see_packages(folders: Iterable[str], environment: Path, name: str) -> None:
    """Adds site-packages to an environment, like `--system-site-packages` but for any other Python.

    Args:
        folders: the other Python's site-packages folders; the environment's own packages take precedence.
        environment: the folder of a virtual environment.
        name: the name of the .pth file to write, such as `over.pth`.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    text = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)
    path = packages / name
    if not path.exists() or path.read_text() != text:  # rewritten only if needed, as a Python may be starting
        half = path.with_suffix(".half")
        half.write_text(text)
        half.replace(path)
