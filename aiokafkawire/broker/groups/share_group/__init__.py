"""Share groups, as their coordinator sees them (KIP-932)."""
