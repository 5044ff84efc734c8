"""The clients that are measured, each at its best idiomatic use. A module is imported only where
its client runs."""
