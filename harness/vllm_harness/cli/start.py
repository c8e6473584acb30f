"""The console script: it handles signals before it imports the commands, which takes a while."""

from __future__ import annotations

import sys

from vllm_harness._machine import interrupts


def main() -> None:
    """Runs a command as this process; SIGTERM and SIGHUP end it as Ctrl-C does."""
    interrupts.handle_signals()
    try:
        from vllm_harness.cli.main import main as run

        code = run()
        interrupts.handle_signals(ending=True)
    except KeyboardInterrupt:
        code = interrupts.INTERRUPTED
    code = interrupts.exit_code(code) if code == interrupts.INTERRUPTED else code
    if code - 128 in interrupts.SIGNALS:
        interrupts.end(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
