"""One request and its answer: how it is built, sent, and read, whichever of the APIs it is of.

- `endpoint`: the address of a server, its clients, and the harness's own plain requests
- `building`: a turn of a conversation as a request of each API
- `sending`: one request sent, sync or async, within its limits; the exchange is `protocol.Exchange`
- `answer`: what an answer means
"""
