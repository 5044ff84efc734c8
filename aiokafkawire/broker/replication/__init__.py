"""Replication as brokers did it before KRaft: each node has its own logs and its own view."""
