"""Real Kafka under real faults, with a load whose histories are judged."""
