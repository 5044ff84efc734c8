"""Push of client metrics to the brokers (KIP-714)."""

from aiokafkawire.telemetry.client import PushesMetrics
from aiokafkawire.telemetry.collector import MetricsSource
from aiokafkawire.telemetry.java_names import ADMIN, CONSUMER, PRODUCER, SHARE_CONSUMER
from aiokafkawire.telemetry.reporter import ClientTelemetryReporter

__all__ = (
    "ADMIN",
    "CONSUMER",
    "PRODUCER",
    "SHARE_CONSUMER",
    "ClientTelemetryReporter",
    "MetricsSource",
    "PushesMetrics",
)
