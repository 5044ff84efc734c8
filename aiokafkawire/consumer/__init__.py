"""The consumer: subscription, positions, fetching, and `Consumer`."""
