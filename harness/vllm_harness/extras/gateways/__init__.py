"""Gateways: the same scripted requests, sent to a server directly and through the gateway before it.

- `cases`: what is requested, as data; `requests`: a case as a request of an API
- `scripts`: the scripted server behind the gateway; `sending`: sends one request
- `check`: sends every case both ways; `recording`: stores the answers of one side
- `compare`, `shape`, `rules`: the differences of two answers; `findings`: the differences over all cases
"""
