"""Faults planted in the client on purpose, one at a time, to see whether the checks notice."""
