"""A Kafka client native to asyncio and trio."""

from aiokafkawire._version import __version__

__all__ = ("__version__",)
