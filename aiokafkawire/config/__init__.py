"""Options of the clients."""

from aiokafkawire.config.admin_config import AdminConfig, AdminOptions
from aiokafkawire.config.checks import (
    COMPRESSION_LEVELS,
    MAX_TEXT_BYTES,
    check_field,
    check_number,
    check_text,
    is_ip_address,
    parse_address,
    parse_bootstrap_servers,
    reset_duration_ms,
)
from aiokafkawire.config.client_config import (
    ClientConfig,
    ClientOptions,
    FilePath,
    SaslMechanism,
    SecretOrCallable,
    SecurityProtocol,
)
from aiokafkawire.config.consumer_config import ConsumerConfig, ConsumerOptions
from aiokafkawire.config.option_fields import MAX_INT32, Option, list_options
from aiokafkawire.config.option_hints import did_you_mean, option_hint
from aiokafkawire.config.options import make_config, unknown_option_text
from aiokafkawire.config.producer_config import (
    Acks,
    CompressionName,
    ProducerConfig,
    ProducerOptions,
)
from aiokafkawire.config.secret import Secret, is_encodable
from aiokafkawire.config.share_consumer_config import ShareConsumerConfig, ShareConsumerOptions
from aiokafkawire.config.worker_config import SET_BY_WORKER, WorkerConfig, WorkerOptions

__all__ = (
    "COMPRESSION_LEVELS",
    "MAX_INT32",
    "MAX_TEXT_BYTES",
    "SET_BY_WORKER",
    "Acks",
    "AdminConfig",
    "AdminOptions",
    "ClientConfig",
    "ClientOptions",
    "CompressionName",
    "ConsumerConfig",
    "ConsumerOptions",
    "FilePath",
    "Option",
    "ProducerConfig",
    "ProducerOptions",
    "SaslMechanism",
    "Secret",
    "SecretOrCallable",
    "SecurityProtocol",
    "ShareConsumerConfig",
    "ShareConsumerOptions",
    "WorkerConfig",
    "WorkerOptions",
    "check_field",
    "check_number",
    "check_text",
    "did_you_mean",
    "is_encodable",
    "is_ip_address",
    "list_options",
    "make_config",
    "option_hint",
    "parse_address",
    "parse_bootstrap_servers",
    "reset_duration_ms",
    "unknown_option_text",
)
