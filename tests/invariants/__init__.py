"""What applications saw while everything failed now and then, and whether it is what they were
promised.

`events` are what happened, `recorder` writes them down, `observed` is what the brokers saw and
hold, `checker` judges.
"""
