"""Where PySpark finds the data source `aiokafkawire` by itself.

It imports every module whose name begins so; if one raises, all of their sources are gone.
"""

from contextlib import suppress

with suppress(ImportError):
    from aiokafkawire.spark.source import KafkaDataSource as DefaultSource

__all__ = ("DefaultSource",)
