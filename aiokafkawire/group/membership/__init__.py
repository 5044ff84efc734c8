"""Membership of a consumer group in the classic protocol, without I/O."""
