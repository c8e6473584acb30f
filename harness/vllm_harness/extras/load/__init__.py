"""Load that checks: many conversations at once, every stream validated while it is timed.

- `plan`: how many conversations, how many at once, when each begins, and which streams a client leaves
- `marks`: words of a conversation's own, which must come back to it
- `hearing`: one streamed answer, read, timed and validated
- `talking`: one conversation, turn by turn
- `tally`: figures, as they come
- `health`: memory and handles of processes, and what a server still runs
- `keeping`: the folder of a run
- `holding`: the part of a client: its conversations, begun in their time
- `clients`, `nodes`: who holds them: this process, or clients on the nodes of a cluster
- `driving`: the whole load
"""
