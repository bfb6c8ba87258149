"""Decides what a supervisor does next, from what it observed. Pure; used by ``local`` and the operator."""
