"""Real Apache Kafka, started from Maven artifacts, for the tests that need one."""
