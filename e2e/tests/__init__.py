"""End-to-end tests that pytest runs."""
