"""TLS and SASL on real Apache Kafka: `make test-security`."""
