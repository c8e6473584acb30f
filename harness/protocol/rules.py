"""The rules: one entry a code."""

from __future__ import annotations

from harness.protocol.findings import Severity

_WARNING = [
    "CC102",
    "CC113",
    "CC205",
    "CC209",
    "CB109",
    "CB110",
    "IT107",
    "IT114",
    "RO104",
    "RO105",
    "RO106",
    "RO113",
    "RO117",
    "RO118",
    "RS116",
    "RS118",
    "SE102",
    "SE106",
]
_INFO = [
    "CC109",
    "CC130",
    "CC131",
    "CC208",
    "IT107",
    "IT112",
    "RS102",
    "RS108",
    "RS109",
    "RS113",
    "RS119",
    "RS124",
    "RS314",
    "RS412",
    "RS413",
    "SE110",
]


class _Severities(dict[str, Severity]):
    def __missing__(self, code: str) -> Severity:
        return Severity.INFO if code in _INFO else Severity.WARNING if code in _WARNING else Severity.ERROR


SEVERITIES = _Severities()
