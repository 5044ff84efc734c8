"""Module by which PySpark finds the data source `aiokafkawire` by itself.

PySpark imports every module whose name begins with `pyspark_`. If one of them raises an error, it
ignores the data sources of all.
"""

from contextlib import suppress

with suppress(ImportError):
    from aiokafkawire.spark.source import KafkaDataSource as DefaultSource

__all__ = ("DefaultSource",)
