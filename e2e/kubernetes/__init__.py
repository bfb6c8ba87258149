"""TxLog on real Kubernetes: the image, the charts and the operator in two data centres (``make e2e``)."""
