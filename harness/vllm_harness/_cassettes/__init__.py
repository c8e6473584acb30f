"""Cassettes: recorded conversations, to check, to repeat, to compare and to answer clients from.

- `format`, `reading`, `writing`: what a cassette file holds; every problem by file and line; secrets stay out
- `turns`, `vcr`, `har`, `foreign`: the same from files of agentic-api, VCR and HTTP archives
- `provenance`, `recording`, `listening`, `proxy`: a conversation of a scenario, or of somebody's client
- `answers`, `checking`: what a recorded answer means, and what the rules of the APIs say of it
- `new_ids`, `replaying`, `serving`: the requests sent again with the ids of the new run; clients answered
- `comparing`: two cassettes, in meaning and in protocol
"""
