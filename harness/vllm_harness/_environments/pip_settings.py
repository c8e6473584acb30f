"""Converts pip's configuration for uv, which does not read it.

This file uses only the standard library: `scripts/_bootstrap` runs it before anything is installed, and
evaluates the `export` lines that it prints.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache

# pip's option -> uv's variable
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
_COMMA_SEPARATED = {"find-links"}
_RANK = {"global": 0, "install": 1, ":env:": 2}


def for_uv(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Converts pip's configuration to uv's environment variables, except those already in `environ`."""
    variables = {}
    for option, value in pip_options().items():
        name = _UV_VARIABLES.get(option)
        if name and name not in environ:
            variables[name] = re.sub(r"\s+", ",", value.strip()) if option in _COMMA_SEPARATED else value
    if "UV_EXTRA_INDEX_URL" in variables and "UV_INDEX_STRATEGY" not in environ:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as in pip; safe with the hashes of a lock
    return variables


@cache
def pip_options() -> dict[str, str]:
    """Reads pip's options and their values; variables override `[install]`, which overrides `[global]`."""
    for pip in _pips():
        listed = subprocess.run(
            [*pip, "config", "list"], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if listed.returncode == 0:
            return dict(_parsed(listed.stdout))
    return {}


def _pips() -> Iterator[list[str]]:
    for python in dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable))):
        yield [python, "-m", "pip"]
    if found := shutil.which("pip"):
        yield [found]


def _parsed(listing: str) -> Iterator[tuple[str, str]]:
    entries = re.findall(r"^(global|install|:env:)\.([\w.-]+)=(.+)$", listing, re.M)
    for _, option, value in sorted(entries, key=lambda entry: _RANK[entry[0]]):
        yield option.lstrip("."), str(ast.literal_eval(value))


if __name__ == "__main__":
    for name, value in for_uv().items():
        print(f"export {name}={shlex.quote(value)}")
