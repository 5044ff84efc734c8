"""Java's Admin and ours, on the same cluster: each operation must give the same result."""
