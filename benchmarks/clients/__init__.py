"""The measured clients, each in its best idiomatic use; only the measured one is imported."""
