"""Share groups (KIP-932): share partitions, share sessions and their persisted state."""
