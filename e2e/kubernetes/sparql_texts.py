"""What the tests write and ask."""

from __future__ import annotations


def insert_update(what: str) -> str:
    return f'INSERT DATA {{ <urn:e2e:{what}> <urn:e2e:says> "{what}" }}'


def ask_query(what: str) -> str:
    return f"SELECT ?s {{ <urn:e2e:{what}> <urn:e2e:says> ?s }}"


LONDON = "<urn:e2e:london> <urn:e2e:population>"


def population_update(people: int) -> str:
    """What both sides of a split say of the same thing: the order of the log decides."""
    old, new = f"{LONDON} ?old", f"{LONDON} {people}"
    return f"DELETE {{ {old} }} INSERT {{ {new} }} WHERE {{ OPTIONAL {{ {old} }} }}"


def population_query() -> str:
    return f"SELECT ?p {{ {LONDON} ?p }}"
