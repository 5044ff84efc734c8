"""How cost grows with the number of partitions, members and clients, and what memory is bounded."""
