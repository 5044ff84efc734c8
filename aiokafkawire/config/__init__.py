"""Options of the clients."""

from aiokafkawire.config.checks import (
    COMPRESSION_LEVELS,
    MAX_TEXT_BYTES,
    check_field,
    is_literal,
    nearest,
    parse_address,
    parse_servers,
    reset_duration_ms,
)
from aiokafkawire.config.options import (
    MAX_INT32,
    Acks,
    ClientConfig,
    ClientOptions,
    CompressionName,
    ConsumerConfig,
    ConsumerOptions,
    Option,
    ProducerConfig,
    ProducerOptions,
    make,
    options_of,
)

__all__ = (
    "COMPRESSION_LEVELS",
    "MAX_INT32",
    "MAX_TEXT_BYTES",
    "Acks",
    "ClientConfig",
    "ClientOptions",
    "CompressionName",
    "ConsumerConfig",
    "ConsumerOptions",
    "Option",
    "ProducerConfig",
    "ProducerOptions",
    "check_field",
    "is_literal",
    "make",
    "nearest",
    "options_of",
    "parse_address",
    "parse_servers",
    "reset_duration_ms",
)
