"""Record what applications observe while faults happen, and check it against the guarantees.

`events` are what happened, `recorder` writes them down, `observed` is what the brokers saw and
hold, `checker` judges.
"""
