"""One request and its answer, in any API: building, sending and reading.

The exchange itself is `_protocol.Exchange`, to which the rules of conversations apply too.

- `server`: the interface of every server of a model entry
- `endpoint`: the address of a server, its clients, and plain requests of the harness
- `building`: a turn of a conversation as a request of each API
- `sending`: sends one request, sync or async; `pending` is an exchange whose answer is arriving
- `answer`: the meaning of an answer
"""
