"""What end-to-end tests and benchmarks share: clusters, loads, histories, checks and reports."""
