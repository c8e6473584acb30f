"""Cassettes: recorded conversations, to check, replay, compare, and serve to clients.

- `format`, `reading`, `writing`: the file format, reading it strictly, and writing it without secrets
- `provenance`, `recording`, `http_server`, `proxy`: recording a scenario or a client's requests
- `answers`, `checking`: the meaning of recorded answers, and checking them against the API rules
- `new_ids`, `replaying`, `serving`: sending the requests again, and answering clients from a cassette
- `comparing`: comparing two cassettes in meaning and in protocol
"""
