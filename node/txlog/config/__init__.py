"""What people write (the manifest of a cluster, one for each data centre) and what a process is told at its start."""
