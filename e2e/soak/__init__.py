"""``make soak``: a whole cluster under faults for as long as one likes, and nothing may be lost, doubled or foreign."""
