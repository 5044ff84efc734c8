"""Membership in the consumer protocol (KIP-848), where the coordinator assigns partitions."""
