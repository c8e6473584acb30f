"""Makes the packages of another Python visible in an environment; imports only the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def see_packages(folders: Iterable[str], environment: Path, name: str) -> None:
    """Adds site-packages to an environment, like `--system-site-packages` but for any other Python.

    Args:
        folders: site-packages of the other Python; the environment's own packages take precedence.
        environment: the folder of a virtual environment.
        name: the name of the file to write, such as `over.pth`.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    text = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)
    path = packages / name
    if not path.exists() or path.read_text() != text:  # a Python may be starting there
        half = path.with_suffix(".half")
        half.write_text(text)
        half.replace(path)
