"""Real Kafka under real faults, with applications whose histories are checked."""
