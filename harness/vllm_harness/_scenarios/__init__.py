"""Scenarios: conversations as data, run over every API of a server, streamed and not.

- `format`, `predicates`, `shorthands`, `reading`: the format of a scenario file, and errors in it
- `tools`, `mcp_servers`, `mcp_client`, `toolboxes`, `images`: the tools and images of a scenario
- `transports`: how each turn becomes a request
- `background`: responses that the server generates in the background
- `mismatches`, `prompts`: the problems of an answer, and of the prompt of a turn
- `known_defects`: marks the problems that known defects explain
- `history`, `conversation`, `running`: the turns so far; runs one conversation, or one over each transport
- `results`, `run_records`: the results, and their records in a run folder
"""
