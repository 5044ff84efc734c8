"""Serializes the keys and values of a producer's records."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable, iscoroutine
from typing import Any

from aiokafkawire.config import ProducerConfig
from aiokafkawire.errors import SerializationFailed
from aiokafkawire.producer.record_columns import copy_column
from aiokafkawire.records.kernel import Buffer
from aiokafkawire.runtime import in_slices
from aiokafkawire.serialization import Serializer, make_serializer

__all__ = ("RecordSerializer",)


class RecordSerializer:
    """The serializers of a producer.

    Args:
        key: Serializer of keys; None for bytes.
        value: Serializer of values; None for bytes.
    """

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of_config(cls, config: ProducerConfig) -> RecordSerializer | None:
        """Return the serializers that the options have, or None if there are none."""
        key, value = (
            make_serializer(config.key_serializer),
            make_serializer(config.value_serializer),
        )
        return None if key is None and value is None else cls(key, value)

    async def serialize(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return the bytes of a key and a value.

        Raises:
            SerializationFailed: A serializer raised an error, or did not return bytes.
        """
        return (
            await _serialize(self._key, key, topic, "key"),
            await _serialize(self._value, value, topic, "value"),
        )

    def serialize_nowait(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return the bytes of a key and a value, without waiting.

        Raises:
            SerializationFailed: As `serialize`, or a serializer is async.
        """
        return (
            _serialize_nowait(self._key, key, topic, "key"),
            _serialize_nowait(self._value, value, topic, "value"),
        )

    async def serialize_columns(
        self, topic: str, keys: Sequence[Any] | None, values: Sequence[Any]
    ) -> tuple[list[Any] | None, list[Any]]:
        """Return the bytes of columns of keys and values. Other tasks run in between.

        Raises:
            SerializationFailed: As `serialize`.
        """
        return (
            None if keys is None else await _serialize_column(self._key, keys, topic, "key"),
            await _serialize_column(self._value, values, topic, "value"),
        )


async def _serialize_column(
    serializer: Serializer | None, column: Sequence[Any], topic: str, part: str
) -> list[Any]:
    serialized: list[Any] = []
    async for items in in_slices([*copy_column(column)]):
        serialized += [await _serialize(serializer, item, topic, part) for item in items]
    return serialized


async def _serialize(serializer: Serializer | None, item: Any, topic: str, part: str) -> Any:
    if serializer is None or item is None:
        return item
    try:
        serialized = serializer(item)
        if isawaitable(serialized):
            serialized = await serialized
    except Exception as error:
        raise _failure(f"the {part} cannot be serialized", error, topic) from error
    return _require_bytes(serialized, topic, part)


def _serialize_nowait(serializer: Serializer | None, item: Any, topic: str, part: str) -> Any:
    if serializer is None or item is None:
        return item
    try:
        serialized = serializer(item)
    except Exception as error:
        raise _failure(f"the {part} cannot be serialized", error, topic) from error
    if iscoroutine(serialized):
        serialized.close()
        raise SerializationFailed(f"{part}_serializer is async: use send", topic=topic)
    return _require_bytes(serialized, topic, part)


def _failure(text: str, error: Exception, topic: str) -> SerializationFailed:
    # Not with the error's text, which may have the value.
    return SerializationFailed(f"{text}: {type(error).__name__}", topic=topic)


def _require_bytes(serialized: Any, topic: str, part: str) -> Any:
    if not isinstance(serialized, Buffer):
        raise SerializationFailed(
            f"{part}_serializer must return bytes, not {type(serialized).__name__}", topic=topic
        )
    return serialized
