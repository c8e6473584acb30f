"""Scenarios: conversations as data, run over every API of a server, streamed and not.

- `format`, `predicates`, `shorthands`, `reading`: the format of a scenario file, and errors in it
- `tools`, `mcp_servers`, `mcp_client`, `toolboxes`, `pictures`: the tools and images of a scenario
- `transports`: how each turn becomes a request
- `background`: responses in the background
- `mismatches`, `prompts`: what is wrong with an answer, and with the prompt of a turn
- `known_defects`: what known defects explain
- `history`, `conversation`, `running`: the turns so far, one conversation, and one over each transport
- `results`, `run_records`: the results, and their records in a run folder
"""
