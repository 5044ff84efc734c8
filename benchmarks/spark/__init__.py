"""Compare the PySpark data source with Spark's Kafka connector: see `__main__`."""
