"""Mutations of the client, planted one at a time: programmes by seed must catch each."""
