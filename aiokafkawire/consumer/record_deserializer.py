"""Deserializes the keys and values of a consumer's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Self

from aiokafkawire.config import ConsumerConfig
from aiokafkawire.errors import DeserializationFailed
from aiokafkawire.records import Record, Records
from aiokafkawire.serialization import Deserializer, make_deserializer
from aiokafkawire.types import KeyT, ValueT

__all__ = ("DeserializedRecords", "RecordDeserializer")


class RecordDeserializer(Generic[KeyT, ValueT]):
    """The deserializers of a consumer.

    Args:
        key: Deserializer of keys; None for bytes.
        value: Deserializer of values; None for bytes.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of_config(cls, config: ConsumerConfig) -> RecordDeserializer[KeyT, ValueT] | None:
        """Return the deserializers that the options have, or None if there are none."""
        key, value = (
            make_deserializer(config.key_deserializer),
            make_deserializer(config.value_deserializer),
        )
        return None if key is None and value is None else cls(key, value)

    def deserialize(self, record: Record[Any, Any]) -> Record[KeyT, ValueT]:
        """Replace the bytes of a record by what they stand for, and return it.

        Raises:
            DeserializationFailed: A deserializer raised an error; the record is as it was.
        """
        key = _deserialize(self._key, record.key, record, "key")
        value = _deserialize(self._value, record.value, record, "value")
        record.key, record.value = key, value
        return record


class DeserializedRecords(Records[KeyT, ValueT]):
    """Records whose keys and values are deserialized when a record is accessed.

    Accessing a record that cannot be deserialized raises `DeserializationFailed`. The records
    after it are in a slice of the sequence.
    """

    __slots__ = ("_deserializer",)

    _deserializer: RecordDeserializer[KeyT, ValueT]

    @classmethod
    def of(
        cls, records: Records[Any, Any], deserializer: RecordDeserializer[KeyT, ValueT]
    ) -> DeserializedRecords[KeyT, ValueT]:
        """Return the records with a deserializer."""
        deserialized = cls(
            *records.topic_partition, records.segments, records.next_offset, records.leader_epoch
        )
        deserialized._deserializer = deserializer
        return deserialized

    def __iter__(self) -> Iterator[Record[KeyT, ValueT]]:
        return map(self._deserializer.deserialize, super().__iter__())

    def _slice(self, start: int, stop: int) -> Self:
        part = super()._slice(start, stop)
        part._deserializer = self._deserializer
        return part

    def keys(self) -> list[KeyT | None]:
        """Return all keys, in order."""
        return [record.key for record in self]

    def values(self) -> list[ValueT | None]:
        """Return all values, in order."""
        return [record.value for record in self]


def _deserialize(
    deserializer: Deserializer | None, data: Any, record: Record[Any, Any], part: str
) -> Any:
    if deserializer is None or data is None:
        return data
    try:
        return deserializer(data)
    except Exception as error:
        # Not with the error's text, which may have the value.
        raise DeserializationFailed(
            f"the {part} cannot be deserialized: {type(error).__name__}", record=record
        ) from error
