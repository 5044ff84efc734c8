"""Record what applications observe while faults happen, and check it against the guarantees.

`events` defines the recorded events, `recorder` records them, `observed` holds the brokers' logs
and requests, `checker` runs the checks.
"""
