"""The worst days, on three real nodes: `python -m tests.soak`."""
