"""The process that makes the change sets of one data centre, and gives them to its masters."""
