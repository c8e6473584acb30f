"""Scenarios: conversations as data, run over every API of a server, streamed and not.

- `format`, `predicates`, `reading`: what a scenario file holds, and every problem by file and line
- `tools`, `mcp_servers`, `mcp_client`, `toolboxes`: the tools of a scenario, answered from its data
- `transports`: a turn as a request of an API, and its answer as a meaning
- `sending`, `background`: one exchange, and one whose answer is made in the background
- `judging`, `prompts`: what is wrong with an exchange, and what its prompt kept
- `tied`: what is wrong because of a defect that a turn is said to show
- `course`, `conversation`, `running`, `results`: what became of the turns so far, a conversation over one
  transport, over several, and what became of it
"""
