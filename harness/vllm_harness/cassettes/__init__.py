"""Cassettes: recorded conversations, to check, to repeat, to compare and to answer clients from.

- `format`, `reading`, `writing`: what a cassette file holds; every problem by file and line; secrets stay out
- `turns`, `vcr`, `har`: the same from files of agentic-api, VCR and HTTP archives
- `provenance`, `recording`, `proxy`: a conversation of a scenario, or of somebody's client, as a cassette
- `answers`, `checking`: what a recorded answer means, and what the rules of the APIs say of it
- `replaying`, `serving`: the requests sent again with the ids of the new run; the answers given to a client
- `comparing`: two cassettes, in meaning and in protocol
"""
