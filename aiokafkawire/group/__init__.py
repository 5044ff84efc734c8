"""Consumer groups: the membership machine, assignors, offsets kept at the coordinator."""
