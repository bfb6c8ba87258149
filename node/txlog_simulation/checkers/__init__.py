"""Linear scans over what the masters wrote, said and executed. Nothing here asks the core what it thinks."""
