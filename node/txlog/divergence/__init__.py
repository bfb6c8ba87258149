"""Do all workers hold the same? Looks at equal positions, judged. Pure."""
