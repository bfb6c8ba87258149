"""The manifests that people write (one for each data centre of a cluster), and the start configurations of
processes."""
