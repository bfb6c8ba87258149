"""Does every accepted update do the same in all stores? ``make determinism``."""
