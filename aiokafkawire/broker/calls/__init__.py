"""The calls of `Broker`, by subject."""
