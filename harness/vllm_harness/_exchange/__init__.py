"""One request and its answer: how it is built, sent, and read, whichever of the APIs it is of.

The exchange itself is `protocol.Exchange`, which the rules of conversations are about, too.

- `endpoint`: the address of a server, its clients, and the harness's own plain requests
- `building`: a turn of a conversation as a request of each API
- `sending`: one request sent, sync or async, within its limits; `pending`: an exchange while its answer comes
- `answer`: what an answer means
"""
