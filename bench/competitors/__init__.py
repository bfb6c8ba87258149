"""TxLog beside the systems that people know: the same work, on the same machine, in one run."""
