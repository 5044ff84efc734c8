"""The membership in a share group (KIP-932), as a state machine."""
