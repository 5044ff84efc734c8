"""Mutations of the client, planted one at a time: scenarios by seed must catch each."""
