"""Messages a second beside aiokafka, against real Kafka: `make bench`."""
