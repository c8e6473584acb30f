"""Prints as JSON the names of the parsers, flags, variables and architectures that a vLLM knows.

The harness never imports this file, as it imports vLLM: `vllm_harness._server.model_check` passes its source
to `python -c` in a server environment. The modules and attributes exist in vLLM 0.22 to 0.33.
"""

import importlib
import json
import os
from typing import Any


def _at(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(module), attribute)


def main() -> None:
    """Writes the JSON to standard output, and redirects everything that vLLM prints to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    parser = _at("vllm.utils.argparse_utils:FlexibleArgumentParser")()
    serve = _at("vllm.entrypoints.cli.serve:ServeSubcommand")().subparser_init(parser.add_subparsers())
    names = {
        "tool_parsers": _at("vllm.tool_parsers:ToolParserManager").list_registered(),
        "reasoning_parsers": _at("vllm.reasoning:ReasoningParserManager").list_registered(),
        "flags": [flag for action in serve._actions for flag in action.option_strings],
        "variables": _at("vllm.envs:environment_variables"),
        "architectures": _at("vllm.model_executor.models:ModelRegistry").get_supported_archs(),
    }
    with answer:
        json.dump({name: sorted(values) for name, values in names.items()}, answer)


if __name__ == "__main__":
    main()
