"""Gateways: the same scripted requests, sent to a server directly and through the gateway in front of it.

- `cases`: the requests and answers, as data; `requests`: builds the requests of a case for an API
- `scripts`: the scripted server behind the gateway; `sending`: sends one request
- `check`: sends every case both ways; `recording`: stores the answers of one side
- `compare`, `shape`, `rules`: the differences between two answers; `findings`: those over all cases
"""
