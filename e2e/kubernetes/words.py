"""What the tests write and ask."""

from __future__ import annotations


def insert(what: str) -> str:
    return f'INSERT DATA {{ <urn:e2e:{what}> <urn:e2e:says> "{what}" }}'


def said(what: str) -> str:
    return f"SELECT ?s {{ <urn:e2e:{what}> <urn:e2e:says> ?s }}"
