"""The console script: it handles signals before it imports the commands, which takes a while."""

from __future__ import annotations

import sys
from typing import NoReturn

from vllm_harness._machine import interrupts


def main() -> NoReturn:
    """Runs the command of this process, and ends the process.

    SIGTERM and SIGHUP end a command as Ctrl-C does: its servers are returned, and its results are kept.
    """
    interrupts.handle_signals()
    try:
        from vllm_harness.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    if code == interrupts.INTERRUPTED:
        code = interrupts.exit_code(code)
    if code - 128 in interrupts.SIGNALS:
        interrupts.end(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
