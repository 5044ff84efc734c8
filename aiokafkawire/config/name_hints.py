"""Names of other Kafka clients that this package lacks, with the alternative for each.

A user of aiokafka, confluent-kafka, kafka-python or Java who tries a familiar name gets an
`AttributeError` with the alternative. `AbsentAttribute` costs nothing for existing names, unlike
`__getattr__`, which slows down every attribute lookup (CPython 3.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = (
    "ADMIN_HINTS",
    "CONSUMER_HINTS",
    "MODULE_HINTS",
    "PRODUCER_HINTS",
    "AbsentAttribute",
    "absent_name_error",
)

TIMEOUT = "pass the timeout: getmany(timeout_ms=…), getone(timeout_ms=…)"
TOPICS = "await partitions_for(topic); the topics of a cluster: await Consumer.topics()"
ADMIN_TYPE = "import it from aiokafkawire.admin"
CREDENTIALS = "pass an async function as sasl_password, which is called for each authentication"
SERIALIZERS = "pass a type or function as key_serializer and value_serializer to Producer"
DESERIALIZERS = "pass a type or function as key_deserializer and value_deserializer to Consumer"
STOP = "await stop(), or leave 'async with'"
START = "await start(), or enter 'async with'"

CLIENT_HINTS: Mapping[str, str] = {
    "bootstrap": START,
    "bootstrap_connected": START,
    "close": STOP,
    "cluster_id": "there is no such call",
    "list_topics": TOPICS,
    "set_sasl_credentials": CREDENTIALS,
}

PRODUCER_HINTS: Mapping[str, str] = {
    **CLIENT_HINTS,
    "client": "use the calls of the producer itself",
    "create_batch": "await send_many(topic, values) creates the batches",
    "init_transactions": START + ", with a transactional_id",
    "max_usable_produce_magic": "the format of records is negotiated",
    "partitions_for_topic": "await partitions_for(topic)",
    "poll": "no polling is needed: await the Delivery that send() returns, or flush()",
    "produce": "await send(topic, value, key), or send_nowait()",
    "produce_batch": "await send_many(topic, values)",
    "purge": "stop() waits close_timeout_ms; unsent records then fail",
    "send_async": "await send(), which returns a Delivery",
    "send_batch": "await send_many(topic, values, partition=…)",
    "send_offsets": "await send_offsets_to_transaction(consumer)",
    "send_sync": "await send_and_wait()",
}

CONSUMER_HINTS: Mapping[str, str] = {
    **CLIENT_HINTS,
    "commit_async": "await commit(), in a separate task if the caller must not wait",
    "commit_sync": "await commit()",
    "consume": "await getmany(timeout_ms=…), or iterate: async for record in consumer",
    "consumer_group_metadata": "group_metadata()",
    "enforce_rebalance": "there is no such call",
    "get_watermark_offsets": "await beginning_offsets(tp), end_offsets(tp); cached: highwater(tp)",
    "incremental_assign": "assign(*partitions) keeps the positions of partitions that stay",
    "incremental_unassign": "assign(*partitions) keeps the positions of partitions that stay",
    "last_poll_timestamp": "see metrics()",
    "list_partitions": TOPICS,
    "memberid": "group_metadata().member_id",
    "partitions_for_topic": "await partitions_for(topic)",
    "poll": "await getmany(timeout_ms=…) or getone(timeout_ms=…); or async for record in consumer",
    "store_offsets": "await commit(…); auto-commit uses processed records",
    "unassign": "unsubscribe()",
    "wakeup": "cancel the task that waits",
}

ADMIN_HINTS: Mapping[str, str] = {
    "alter_configs": "await incremental_alter_configs(…), which keeps all other configs",
    "bootstrap": START,
    "bootstrap_connected": START,
    "close": STOP,
    "delete_groups": "await delete_consumer_groups(…)",
    "describe_groups": "await describe_consumer_groups(…) or describe_classic_groups(…)",
    "find_coordinator_ids": "the client finds the brokers of each call",
    "get_api_versions": "await describe_features()",
    "list_group_offsets": "await list_consumer_group_offsets(…)",
    "perform_leader_election": "await elect_leaders(…)",
    "poll": "no polling is needed: await each call",
    "set_sasl_credentials": CREDENTIALS,
}

MODULE_HINTS: Mapping[str, str] = {
    "AIOKafkaAdminClient": "use Admin",
    "AIOKafkaClient": "use Producer or Consumer",
    "AIOKafkaConsumer": "use Consumer",
    "AIOKafkaProducer": "use Producer",
    "AIOConsumer": "use Consumer",
    "AIOProducer": "use Producer",
    "AbstractTokenProvider": "pass an async function as sasl_oauth_token_provider",
    "AdminClient": "use Admin",
    "AsyncConsumerRebalanceListener": "use RebalanceListener",
    "AuthenticationFailedError": "use AuthenticationFailed",
    "AuthenticationMethodNotSupported": "use AuthenticationFailed",
    "BrokerResponseError": "use BrokerError; see its code and name",
    "Client": "use Producer or Consumer; for Kafka 0.7 aiokafkawire.kafka07.Client",
    "CommitFailedError": "use CommitFailed",
    "ConfigResource": ADMIN_TYPE,
    "ConsumerGroupMetadata": "use GroupMetadata",
    "ConsumerRebalanceListener": "use RebalanceListener",
    "ConsumerRecord": "use Record",
    "ConsumerStoppedError": "use ClientClosed",
    "CorruptRecordException": "use CorruptRecord",
    "DeserializingConsumer": DESERIALIZERS,
    "Deserializer": DESERIALIZERS,
    "FencedInstanceIdError": "use FencedInstanceId",
    "GroupAuthorizationFailedError": "use AuthorizationFailed; its resource_type is group",
    "IllegalGenerationError": "use CommitFailed",
    "IllegalOperation": "use IllegalState",
    "IllegalStateError": "use IllegalState",
    "KafkaAdminClient": "use Admin",
    "KafkaClient": "use Producer or Consumer",
    "KafkaConnectionError": "use NoBrokerAvailable, ConnectionFailed or ConnectionLost",
    "KafkaConsumer": "use Consumer",
    "KafkaException": "use KafkaError",
    "KafkaProducer": "use Producer",
    "KafkaTimeoutError": "use RequestTimedOut, DeliveryTimedOut, BufferFull or UnknownTopic",
    "Message": "use Record",
    "MessageSizeTooLargeError": "use RecordTooLarge",
    "NewPartitions": ADMIN_TYPE,
    "NewTopic": ADMIN_TYPE,
    "NoBrokersAvailable": "use NoBrokerAvailable",
    "NoOffsetForPartitionError": "use NoOffsetForPartition",
    "OffsetOutOfRangeError": "use NoOffsetForPartition",
    "OffsetSpec": ADMIN_TYPE + "; of a Consumer: beginning_offsets(), end_offsets()",
    "ProducerClosed": "use ClientClosed",
    "ProducerRecord": "pass its parts to Producer.send(topic, value, key, partition)",
    "RebalanceInProgressError": "use CommitFailed",
    "RequestTimedOutError": "use RequestTimedOut, DeliveryTimedOut or DeliveryUnknown",
    "Serializer": SERIALIZERS,
    "SerializingProducer": SERIALIZERS,
    "SaslAuthenticationFailed": "use AuthenticationFailed",
    "TopicAuthorizationFailedError": "use AuthorizationFailed; its resource_type is topic",
    "UnknownMemberIdError": "use CommitFailed",
    "UnknownTopicOrPartitionError": "use UnknownTopic",
    "UnsupportedSaslMechanismError": "use AuthenticationFailed",
    "UnsupportedVersionError": "use UnsupportedVersion",
    "create_ssl_context": "pass ssl_cafile, ssl_certfile and ssl_keyfile, or an ssl.SSLContext",
}


class AbsentAttribute:
    """A missing class attribute: looking it up raises `AttributeError` with a hint."""

    __slots__ = ("hint", "name")

    def __init__(self, name: str, hint: str) -> None:
        self.name = name
        self.hint = hint

    def __get__(self, instance: object, owner: type) -> Any:
        # With `obj`, Python does not add its own "Did you mean".
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self.name!r}: {self.hint}",
            name=self.name,
            obj=None,
        )


def absent_name_error(module: str, name: str, caller: str) -> Exception:
    """Return the error for a name that a module lacks, with the alternative if there is one.

    Args:
        module: Name of the module.
        name: The name, perhaps of another client's package.
        caller: Name of the function that looks it up.
    """
    text = f"module {module!r} has no attribute {name!r}"
    hint = MODULE_HINTS.get(name)
    if hint is None:
        return AttributeError(text)
    if caller == "_handle_fromlist":
        # `from module import name` would replace an AttributeError and drop its hint.
        return ImportError(f"{text}: {hint}", name=module)
    return AttributeError(f"{text}: {hint}", name=name, obj=None)
