"""Whatever reads bytes from outside, given bytes that nobody would send: ``make fuzz``."""
