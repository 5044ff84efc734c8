"""Tests on three real nodes under faults and steady load: `python -m verify.soak`."""
