"""The PySpark data source beside Spark's own Kafka connector: see `__main__`."""
