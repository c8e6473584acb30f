"""One request and its answer, in any API: building the request, sending it and reading the answer.

The exchange itself is an `Exchange` of `_protocol`, which the rules for conversations check too.

- `server`: the interface of every server of a model entry
- `endpoint`: a server's address, clients for it, and the harness's own plain requests
- `building`: builds the request for a conversation turn in each API
- `sending`: sends one request, sync or async; `pending` is an exchange whose answer is still arriving
- `answer`: an answer's content, independent of the API
"""
