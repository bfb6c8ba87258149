"""The operator: what a ``TxLogCluster`` says, kept true on Kubernetes."""
