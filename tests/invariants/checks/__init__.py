"""The invariants: each a function of a `Run` that gives the violations it finds.

One that cannot be looked at in a run raises `NotChecked` with the reason.
"""
