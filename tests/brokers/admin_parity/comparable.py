"""The comparable form of results, and the differences between two of them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from aiokafkawire.admin import ClientQuotaEntity, ConfigResource, TopicPartitionReplica
from aiokafkawire.errors import (
    BrokerError,
    InvalidOption,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from aiokafkawire.types import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition

__all__ = (
    "Failure",
    "Struct",
    "Unordered",
    "comparable",
    "differences",
    "key_text",
    "renamed",
    "snake_case",
)

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PREFIX = re.compile(r"^get_")


class Struct(dict[str, Any]):
    """Fields of an object by name; the other side may have further ones."""


class Unordered(list[Any]):
    """Elements of a set, in any order."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, compared by its code."""

    code: str


def snake_case(name: str) -> str:
    """Return Python's form of the name of a Java method."""
    return _PREFIX.sub("", _WORD.sub("_", name).lower())


def key_text(key: Any) -> Any:
    """Return the key of a mapping in a form that both sides have."""
    return key if isinstance(key, str | int) else json.dumps(key, sort_keys=True, default=str)


def comparable(result: Any) -> Any:
    """Return a result of ours in the comparable form; a comparable one stays as it is."""
    if isinstance(result, Struct | Failure | Unordered):
        return result
    if isinstance(result, KafkaError):
        return Failure(_code(result))
    if isinstance(result, TopicPartition):
        return f"{result.topic}-{result.partition}"
    if isinstance(result, Enum):
        return result.name
    if isinstance(result, UUID):
        return base64.urlsafe_b64encode(result.bytes).decode().rstrip("=")
    if isinstance(result, TopicPartitionReplica):
        return f"{result.topic}-{result.partition}-{result.broker_id}"
    if isinstance(result, ConfigResource):
        return f"{result.type.name} {result.name}"
    if isinstance(result, OffsetAndMetadata):
        epoch = None if result.leader_epoch == NO_LEADER_EPOCH else result.leader_epoch
        fields_of = {"offset": result.offset, "metadata": result.metadata, "leader_epoch": epoch}
        return Struct(fields_of)
    if isinstance(result, ClientQuotaEntity):
        return result.entries
    if is_dataclass(result) and not isinstance(result, type):
        names = [each.name for each in fields(result)]
        names += [name for name, each in vars(type(result)).items() if isinstance(each, property)]
        return Struct({name: comparable(getattr(result, name)) for name in names})
    if hasattr(result, "_asdict"):
        return Struct({key: comparable(value) for key, value in result._asdict().items()})
    if isinstance(result, Mapping):
        return {key_text(comparable(key)): comparable(value) for key, value in result.items()}
    if isinstance(result, Set):
        return Unordered(comparable(each) for each in result)
    if isinstance(result, list | tuple):
        return [comparable(each) for each in result]
    return result


def _code(error: KafkaError) -> str:
    match error:
        case BrokerError():
            return error.name
        case RequestTimedOut():
            return "REQUEST_TIMED_OUT"
        case UnsupportedVersion():
            return "UNSUPPORTED_VERSION"
        case InvalidOption():
            return "INVALID_REQUEST"
        case _:
            return type(error).__name__


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a comparable value with texts replaced in all strings, keys included."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        kind = type(value)
        return kind(
            {renamed(key, names): renamed(each, names) for key, each in value.items()}  # type: ignore[call-arg]
        )
    if isinstance(value, list):
        return type(value)(renamed(each, names) for each in value)
    return value


def differences(
    java: Any, ours: Any, ignored: Set[str] = frozenset(), path: str = ""
) -> Iterator[str]:
    """Yield a line per difference.

    Every field that Java has must be in ours, except the `ignored` ones, by name. Ours may have
    further fields in an object, but no further keys in a mapping and no further elements.
    """
    if isinstance(java, Struct) and isinstance(ours, Struct):
        for name in java:
            if name in ignored:
                continue
            if name not in ours:
                yield f"{path}.{name}: ours lacks it; Java has {java[name]!r}"
            else:
                yield from differences(java[name], ours[name], ignored, f"{path}.{name}")
    elif isinstance(java, Mapping) and isinstance(ours, Mapping):
        for key in java.keys() | ours.keys():
            if key not in java or key not in ours:
                lacks = "Java" if key not in java else "ours"
                yield f"{path}[{key}]: {lacks} lacks it"
            else:
                yield from differences(java[key], ours[key], ignored, f"{path}[{key}]")
    elif isinstance(java, list) and isinstance(ours, list):
        if _in_any_order(java) or _in_any_order(ours):
            java, ours = (sorted(each, key=partial(_order, ignored)) for each in (java, ours))
        if len(java) != len(ours):
            yield f"{path}: Java {len(java)} elements {java!r}, ours {len(ours)} {ours!r}"
        else:
            for number, (left, right) in enumerate(zip(java, ours, strict=True)):
                yield from differences(left, right, ignored, f"{path}[{number}]")
    elif java != ours:
        yield f"{path}: Java {java!r}, ours {ours!r}"


def _in_any_order(value: list[Any]) -> bool:
    """Return True for elements of a set, and for objects, which Java often keeps in one."""
    return isinstance(value, Unordered) or any(isinstance(each, Struct) for each in value)


def _order(ignored: Set[str], value: Any) -> str:
    """Sort key that does not depend on the order of fields, nor on ignored ones."""
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key not in ignored}
        return repr(sorted((key, _order(ignored, each)) for key, each in kept.items()))
    return repr(value)
