"""The operator: keeps data centres on Kubernetes as their ``TxLogCluster`` resources specify."""
