"""The PySpark data source `aiokafkawire`: Kafka for batch and streaming queries, without a jar.

Needs the extra `spark`; `pyspark_aiokafkawire` registers it by itself where this package is
installed, else `spark.dataSource.register(KafkaDataSource)` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .source import KafkaDataSource

__all__ = ("KafkaDataSource",)


def __getattr__(name: str) -> object:
    # PySpark is optional, and what decides here needs none of it.
    if name != "KafkaDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .source import KafkaDataSource  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise ImportError(
            "the data source needs PySpark 4.2 or later: install aiokafkawire[spark]",
            name=error.name,
        ) from error
    return KafkaDataSource
