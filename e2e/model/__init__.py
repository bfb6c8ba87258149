"""The protocol as a TLA+ module, its runs on small sizes, and mutants of the module. ``make model``."""
