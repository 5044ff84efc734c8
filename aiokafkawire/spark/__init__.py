"""The PySpark data source `aiokafkawire`: Kafka for batch and streaming queries, without a jar.

Requires the extra `spark`. PySpark finds the data source through `pyspark_aiokafkawire` where this
package is installed; otherwise call `spark.dataSource.register(KafkaDataSource)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .source import KafkaDataSource

__all__ = ("KafkaDataSource",)


def __getattr__(name: str) -> object:
    # PySpark is optional, and most modules of this package do not need it.
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
