"""Cassettes: recorded conversations, to check, replay, compare, and serve to clients.

- `format`, `reading`, `writing`: the format, its errors by file and line, and files without secrets
- `provenance`, `recording`, `http_server`, `proxy`: recording a scenario or the requests of a client
- `answers`, `checking`: the meaning of recorded answers, and the findings of the rules in them
- `new_ids`, `replaying`, `serving`: sending the requests again, and answering clients from a cassette
- `comparing`: comparing two cassettes in meaning and in protocol
"""
