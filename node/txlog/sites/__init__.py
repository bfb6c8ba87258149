"""Links between two sites: clusters that write on their own, and import each other's changes without waiting."""
