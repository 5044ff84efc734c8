"""Measure how cost grows with partitions, members and clients, and how much memory is used."""
