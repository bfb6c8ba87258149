"""Whole Kubernetes clusters on one machine: every data centre has its own control plane, nodes, containers and DNS."""
