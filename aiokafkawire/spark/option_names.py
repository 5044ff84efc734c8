"""Names of client options: `max_block_ms` in Python is `kafka.max.block.ms` in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafkawire.config import ConsumerConfig, ProducerConfig, list_options
from aiokafkawire.errors import KafkaError, UnknownTopic

__all__ = (
    "KAFKA_PREFIX",
    "OBJECT_OPTIONS",
    "RENAMED_OPTIONS",
    "argument_name",
    "reword",
    "reword_errors",
)

KAFKA_PREFIX = "kafka."

RENAMED_OPTIONS = {
    "batch.size": "batch_size_bytes",
    "buffer.memory": "buffer_memory_bytes",
    "max.request.size": "max_request_size_bytes",
    "compression.gzip.level": "compression_level",
    "compression.lz4.level": "compression_level",
    "compression.zstd.level": "compression_level",
}
"""Kafka's names whose argument is not the same name with underscores."""

SECURITY_NAMES = {
    "ssl_cadata": "ssl.truststore.certificates",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certdata": "ssl.keystore.certificate.chain",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_keydata": "ssl.keystore.key",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""Kafka's names of arguments of TLS; `security_options` reads them, beside others."""

OBJECT_OPTIONS = frozenset(
    {
        "partitioner",
        "partition_assignment_strategy",
        "sasl_oauth_token_provider",
        "ssl_context",
    }
)
"""Options whose values are Python objects, which an option of Spark cannot hold."""

_AUTO_CREATE_TOPICS = "allow_auto_create_topics"
"""Always false in the consumers of the data source, regardless of the user's options."""

_ARGUMENTS = {
    option.name
    for config_class in (ConsumerConfig, ProducerConfig)
    for option in list_options(config_class)
    if option.name not in OBJECT_OPTIONS | {"compression_level"}  # three options of Kafka set it
}

# A name of one word may be plain English, except at the beginning of a text: "acks must be …".
_ARGUMENT = re.compile(
    rf"^(?:{'|'.join(sorted(_ARGUMENTS))})(?= must )"
    rf"|\b(?:{'|'.join(sorted(name for name in _ARGUMENTS if '_' in name))})\b"
)

_KAFKA_NAMES = SECURITY_NAMES | {argument: name for name, argument in RENAMED_OPTIONS.items()}


def argument_name(name: str) -> str:
    """Return the client's name of a Kafka option: `max_block_ms` for `max.block.ms`."""
    return RENAMED_OPTIONS.get(name, name.replace(".", "_"))


def reword(text: str) -> str:
    """Replace names of client arguments in a text by names of the data source's options."""

    def option(match: re.Match[str]) -> str:
        argument = match[0]
        return KAFKA_PREFIX + _KAFKA_NAMES.get(argument, argument.replace("_", "."))

    return _ARGUMENT.sub(option, text)


@contextmanager
def reword_errors() -> Iterator[None]:
    """Reword each `KafkaError` that passes through, so that it names options of the data source."""
    try:
        yield
    except KafkaError as error:
        if isinstance(error, UnknownTopic) and _AUTO_CREATE_TOPICS in error.reason:
            error.reason = (
                f"topic {error.topic!r} does not exist: it was deleted or never created. Create it,"
                " or correct the option subscribe or assign"
            )
        error.reason = reword(error.reason)
        raise
