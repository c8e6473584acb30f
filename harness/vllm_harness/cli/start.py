"""The console script: it handles signals before it imports the commands, which takes a while."""

from __future__ import annotations

from vllm_harness._machine import interrupts


def main() -> None:
    """Runs a command; see `cli.main.main`."""
    interrupts.handle_signals()
    try:
        from vllm_harness.cli.main import main as run

        run()
    except KeyboardInterrupt:
        interrupts.end(interrupts.exit_code(interrupts.INTERRUPTED))


if __name__ == "__main__":
    main()
