"""Hints for unknown options: names of other Kafka clients first, then similar spellings.

The other clients are aiokafka, kafka-python, librdkafka (confluent-kafka) and Kafka's Java client.
Names are compared in lower case with underscores: `linger.ms` and `linger-ms` match `linger_ms`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

from aiokafkawire.config import security_hints

__all__ = ("did_you_mean", "option_hint")

SERIALIZERS = "pass a function that does this as value_serializer or value_deserializer"
CALLBACK = "options have no callbacks: the calls raise errors"
LOGGING = 'set the level of logging.getLogger("aiokafkawire")'
METRICS = "see metrics() of the client"
SOCKETS = "sockets keep the defaults of the operating system"
LOOP = "a client belongs to the event loop in which it is started"
WAIT = "pass the timeout to the call: getmany(timeout_ms=…), getone(timeout_ms=…)"
STORED = "commit() and auto-commit use the records that the application has processed"
INTERNAL = "a pattern matches no internal topic; subscribe to one by its name"
NEGOTIATED = "versions are negotiated with each broker; api_version='0.8.2' skips that"
SESSIONS = "fetch sessions are used if the broker supports them"
NO_COUNT_LIMIT = "only size and time limit a batch: batch_size_bytes, linger_ms"
LEVEL = "compression_level"
NO_PLUGINS = "there are no plug-ins: wrap the calls of the client instead"
EVENTS = "there are no events: calls raise errors, and lag() shows the end of a partition"

RENAMED: Mapping[str, str] = {
    # Every client
    "bootstrap": "bootstrap_servers",
    "bootstrap_server": "bootstrap_servers",
    "broker": "bootstrap_servers",
    "broker_list": "bootstrap_servers",
    "brokers": "bootstrap_servers",
    "host": "bootstrap_servers",
    "hosts": "bootstrap_servers",
    "metadata_broker_list": "bootstrap_servers",
    "server": "bootstrap_servers",
    "servers": "bootstrap_servers",
    "allow_auto_create": "allow_auto_create_topics",
    "auto_create_topics": "allow_auto_create_topics",
    "bootstrap_timeout_ms": "default_api_timeout_ms",
    "broker_version_fallback": "api_version",
    "connection_max_idle_ms": "connections_max_idle_ms",
    "max_response_size": "max_response_bytes",
    "metadata_max_age": "metadata_max_age_ms",
    "rack": "client_rack",
    "rack_id": "client_rack",
    "receive_message_max_bytes": "max_response_bytes",
    "request_timeout": "request_timeout_ms",
    "retry_backoff": "retry_backoff_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    # Producer
    "ack": "acks",
    "required_acks": "acks",
    "request_required_acks": "acks",
    "batch_bytes": "batch_size_bytes",
    "batch_size": "batch_size_bytes",
    "max_batch_size": "batch_size_bytes",
    "buffer_memory": "buffer_memory_bytes",
    "queue_buffering_max_kbytes": "buffer_memory_bytes",
    "queue_buffering_max_messages": "buffer_memory_bytes",
    "queue_buffering_max_ms": "linger_ms",
    "compression": "compression_type",
    "compression_codec": "compression_type",
    "compression_gzip_level": LEVEL,
    "compression_lz4_level": LEVEL,
    "compression_zstd_level": LEVEL,
    "idempotence": "enable_idempotence",
    "idempotent": "enable_idempotence",
    "linger": "linger_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "max_in_flight_requests": "max_in_flight_requests_per_connection",
    "max_message_bytes": "max_request_size_bytes",
    "max_request_size": "max_request_size_bytes",
    "message_max_bytes": "max_request_size_bytes",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "partitioner_class": "partitioner",
    "topic_metadata_propagation_max_ms": "max_block_ms",
    "transaction_id": "transactional_id",
    "txn_id": "transactional_id",
    # Consumer
    "assignors": "partition_assignment_strategy",
    "auto_commit": "enable_auto_commit",
    "auto_commit_enable": "enable_auto_commit",
    "autocommit": "enable_auto_commit",
    "consumer_group": "group_id",
    "group": "group_id",
    "group_name": "group_id",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "queued_max_messages_kbytes": "fetch_max_bytes",
    "queued_min_messages": "fetch_max_bytes",
    "initial_offset": "auto_offset_reset",
    "offset_reset": "auto_offset_reset",
    "offset_reset_policy": "auto_offset_reset",
    "max_poll_interval": "max_poll_interval_ms",
    "max_records": "max_poll_records",
    "partition_assignors": "partition_assignment_strategy",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "static_member_id": "group_instance_id",
    **security_hints.RENAMED,
}
"""Options of other clients, with the corresponding option of this package."""

ABSENT: Mapping[str, str] = {
    # aiokafka and kafka-python
    "loop": LOOP,
    "consumer_timeout_ms": WAIT,
    "default_offset_commit_callback": "await commit(), which raises errors",
    "enable_incremental_fetch_sessions": SESSIONS,
    "exclude_internal_topics": INTERNAL,
    "kafka_client": SOCKETS,
    "selector": SOCKETS,
    "socket_options": SOCKETS,
    "receive_buffer_bytes": SOCKETS,
    "send_buffer_bytes": SOCKETS,
    "proxy_url": "proxies are not supported",
    "socks5_proxy": "proxies are not supported",
    "topics": "topics are positional arguments: Consumer('orders', …); or call subscribe()",
    "topic": "topics are positional arguments: Consumer('orders', …); or call subscribe()",
    # Java
    "auto_include_jmx_reporter": METRICS,
    "client_dns_lookup": "all addresses of a host name are tried",
    "config_providers": NO_PLUGINS,
    "interceptor_classes": NO_PLUGINS,
    "metadata_recovery_strategy": "always rebootstrap: metadata_recovery_rebootstrap_trigger_ms",
    "transaction_two_phase_commit_enable": (
        "see Producer.detach_transaction() and end_detached_transaction()"
    ),
    # librdkafka
    "allow_auto_offset_store": STORED,
    "api_version_fallback_ms": NEGOTIATED,
    "api_version_request": NEGOTIATED,
    "api_version_request_timeout_ms": NEGOTIATED,
    "auto_offset_store": STORED,
    "background_event_cb": CALLBACK,
    "batch_num_messages": NO_COUNT_LIMIT,
    "broker_address_family": "addresses of both families are tried",
    "broker_address_ttl": "host names are resolved for each connection",
    "builtin_features": "aiokafkawire.about() shows what is installed",
    "consume_callback_max_messages": CALLBACK,
    "debug": LOGGING,
    "delivery_report_only_error": "each send() returns a Delivery: await it",
    "enable_auto_offset_store": STORED,
    "enable_gapless_guarantee": "a batch whose outcome is unknown fails with DeliveryUnknown",
    "enable_partition_eof": EVENTS,
    "enable_random_seed": "no seed is needed",
    "enable_sparse_connections": "connections are opened on demand",
    "enabled_events": EVENTS,
    "fetch_error_backoff_ms": "retry_backoff_ms applies to all retries",
    "fetch_queue_backoff_ms": "a fetch waits until the buffer has space: fetch_max_bytes",
    "group_protocol_type": "group_protocol chooses how the group is balanced",
    "internal_termination_signal": "the client has no threads that need a signal",
    "log_level": LOGGING,
    "log_queue": LOGGING,
    "log_thread_name": LOGGING,
    "logger": LOGGING,
    "max_in_flight_per_connection": "max_in_flight_requests_per_connection of Producer",
    "message_copy_max_bytes": "each record is copied once, into its batch",
    "msg_order_cmp": "records of a partition are sent in the order of the calls",
    "on_delivery": "each send() returns a Delivery: await it",
    "offset_store_method": "the group coordinator stores offsets: commit()",
    "opaque": CALLBACK,
    "plugin_library_paths": NO_PLUGINS,
    "produce_offset_report": "a Delivery always has the offset",
    "queue_buffering_backpressure_threshold": "send() waits for memory: buffer_memory_bytes",
    "queuing_strategy": "records of a partition are sent in the order of the calls",
    "reconnect_backoff_jitter_ms": "jitter is always on; see reconnect_backoff_ms",
    "socket_blocking_max_ms": SOCKETS,
    "socket_keepalive_enable": SOCKETS,
    "socket_max_fails": "a connection closes on its first failure",
    "socket_nagle_disable": "Nagle's algorithm is off",
    "socket_receive_buffer_bytes": SOCKETS,
    "socket_send_buffer_bytes": SOCKETS,
    "statistics_interval_ms": METRICS,
    "sticky_partitioning_linger_ms": "records without a key always fill one batch at a time",
    "topic_blacklist": "a pattern can exclude topics: subscribe(pattern=…)",
    "topic_metadata_refresh_fast_cnt": "metadata_max_age_ms sets the refresh interval",
    "topic_metadata_refresh_fast_interval_ms": "retry_backoff_ms applies to all retries",
    "topic_metadata_refresh_sparse": "only topics in use are requested",
    **security_hints.ABSENT,
}
"""Options of other clients without a counterpart, with the reason or an alternative."""

FAMILIES: Sequence[tuple[str, str]] = (
    *security_hints.FAMILIES,
    ("key_", SERIALIZERS),
    ("value_", SERIALIZERS),
    ("metric", METRICS),
    ("schema_registry", SERIALIZERS),
)
"""Options of other clients by prefix."""


def option_hint(
    name: str, known: Sequence[str], others: Mapping[str, Collection[str]] | None = None
) -> str:
    """Return the end of an error message about an unknown option; empty if nothing is similar.

    Args:
        name: The option that was passed.
        known: The options of the client.
        others: The options of this package's other clients, by kind of client.
    """
    plain = name.lower().replace(".", "_").replace("-", "_")
    target = RENAMED.get(plain, plain)
    if target in known:
        note = f" {security_hints.NOTES[plain]}" if plain in security_hints.NOTES else ""
        return f"; did you mean {target!r}?{note}"
    for client, options in (others or {}).items():
        if target in options:
            return f"; {target!r} is a {client} option"
    absent = ABSENT.get(plain)
    if absent is None and plain.endswith(("_cb", "_callback")):
        absent = CALLBACK
    is_misspelt = difflib.get_close_matches(plain, known, n=1, cutoff=0.9)
    if absent is None and not is_misspelt:
        absent = next((text for start, text in FAMILIES if plain.startswith(start)), None)
    return did_you_mean(name, known) if absent is None else f"; {absent}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean …?" with the most similar option, or an empty string."""
    candidates = [candidate for candidate in known if candidate.startswith(name)]
    candidates += difflib.get_close_matches(name.replace(".", "_"), known, n=1, cutoff=0.6)
    return f"; did you mean {candidates[0]!r}?" if candidates else ""
