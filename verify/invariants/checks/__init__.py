"""The invariants: each is a function from a `Run` to its violations.

A function raises `NotChecked` with the reason if a run has nothing to check.
"""
