"""Load tests with many conversations at once, in which every stream is checked while it is timed.

- `plan`: how many conversations, how many at once, when each starts, and which streams the client leaves
- `marks`: the mark of each conversation, which its answers must repeat
- `streams`: reads, times and validates one streamed answer
- `conversations`: holds one conversation, turn by turn
- `client`: a client, which holds its share of the conversations in this process
- `nodes`: clients on the nodes of a cluster
- `tally`: counts and distributions
- `health`: memory and handles of processes, and the requests that a server still runs
- `recorder`: writes the run folder
- `driver`: runs the whole load
"""
