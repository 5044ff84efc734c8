"""Convert messages to and from JSON, in the format of Kafka's JsonConverter classes.

Field names are Kafka's, in camel case; bytes are base64; UUIDs have Kafka's text format. A tagged
field at its default is omitted. Two things are added to Kafka's format: `records` as base64, and
`_unknownTaggedFields`, a list of `{"tag", "data"}`.
"""

import base64
import struct
from collections.abc import Mapping
from typing import Any, TypeVar, cast
from uuid import UUID

from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire.codec import check_version
from aiokafkawire.wire.diagnostics import check_default
from aiokafkawire.wire.primitives import Primitive, uuid_from_text, uuid_to_text
from aiokafkawire.wire.schema import Message, Struct, TypeKind, schema_for

__all__ = ("from_json", "to_json")

M = TypeVar("M", bound=Message)

UNKNOWN = "_unknownTaggedFields"


def to_json(message: Message, version: int) -> dict[str, Any]:
    """Convert a message in `version` to JSON types: dict, list, str, int, float, bool and None.

    Raises:
        UnsupportedVersion: As by `encode`.
    """
    cls = type(message)
    check_version(cls, version)
    return _struct_to_json(message, version, flexible=cls.is_flexible(version))


def from_json(cls: type[M], version: int, form: Mapping[str, Any]) -> M:
    """Convert JSON types to a message of `version`.

    Raises:
        ValueError: A field is missing, unknown or of a wrong type. The text has its path.
    """
    check_version(cls, version)
    made = _struct_from_json(cls, version, form, cls.is_flexible(version), schema_for(cls).name)
    return cast("M", made)


def _struct_to_json(obj: Struct, version: int, *, flexible: bool) -> dict[str, Any]:
    schema = schema_for(type(obj))
    for item in schema.non_ignorable(version):
        try:
            check_default(item, version, obj)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{schema.name}.{item.name}: {error}") from None
    tagged = set(schema.tagged(version))
    form: dict[str, Any] = {}
    for item in schema.fields:
        value = getattr(obj, item.name)
        if version not in item.versions or (item in tagged and value == item.default_value()):
            continue
        form[item.wire_name] = _to_json(item.kind, value, version, flexible=flexible)
    if obj.unknown_tagged_fields:
        if not flexible:
            raise UnsupportedVersion(f"{schema.name} has no tagged fields in version {version}")
        form[UNKNOWN] = [
            {"tag": tag, "data": _base64(content)}
            for tag, content in sorted(obj.unknown_tagged_fields)
        ]
    return form


def _to_json(kind: TypeKind, value: Any, version: int, *, flexible: bool) -> Any:
    if value is None:
        return None
    if kind.element is not None:
        return [_to_json(kind.element, item, version, flexible=flexible) for item in value]
    if kind.struct is not None:
        return _struct_to_json(value, version, flexible=flexible)
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _base64(value)
    # Some JSON encoders write the name of an IntEnum member.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _base64(content: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(content).decode("ascii")


def _struct_from_json(
    cls: type[Struct], version: int, form: object, flexible: bool, path: str
) -> Struct:
    if not isinstance(form, Mapping):
        raise ValueError(f"{path}: {form!r} is not an object")
    schema = schema_for(cls)
    tagged = set(schema.tagged(version))
    left = dict(form)
    values: dict[str, Any] = {}
    for item in schema.fields:
        here = f"{path}.{item.wire_name}"
        if version not in item.versions:
            continue
        if item.wire_name not in left:
            if item not in tagged:
                raise ValueError(f"{here}: missing in version {version}")
            continue
        value = left.pop(item.wire_name)
        if value is None:
            if version not in item.nullable:
                raise ValueError(f"{here}: null is not allowed in version {version}")
            values[item.name] = None
        else:
            values[item.name] = _from_json(item.kind, value, version, flexible, here)
    if flexible:
        values["unknown_tagged_fields"] = _unknown_from_json(left.pop(UNKNOWN, ()), path)
    if left:
        raise ValueError(f"{path}: unknown in version {version}: {', '.join(map(str, left))}")
    return cls(**values)


def _unknown_from_json(form: Any, path: str) -> tuple[tuple[int, bytes], ...]:
    try:
        return tuple((int(item["tag"]), base64.b64decode(item["data"])) for item in form)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path}.{UNKNOWN}: {error}") from error


def _from_json(kind: TypeKind, value: Any, version: int, flexible: bool, path: str) -> Any:
    if kind.element is not None:
        if not isinstance(value, list):
            raise ValueError(f"{path}: {value!r} is not a list")
        element = kind.element
        return [
            _from_json(element, item, version, flexible, f"{path}[{index}]")
            for index, item in enumerate(value)
        ]
    if kind.struct is not None:
        return _struct_from_json(kind.struct, version, value, flexible, path)
    assert kind.primitive is not None
    try:
        return _primitive_from_json(kind.primitive, value)
    except (ValueError, struct.error) as error:
        raise ValueError(f"{path}: {error}") from error


def _primitive_from_json(kind: Primitive, value: Any) -> Any:
    accepted = _ACCEPTED.get(kind.name, int)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind.name != "bool"):
        raise ValueError(f"{value!r} is not a {kind.name}")
    if kind.name in {"bytes", "records"}:
        return base64.b64decode(value, validate=True)
    if kind.name == "uuid":
        return uuid_from_text(value)
    if accepted is int:
        struct.pack(">" + kind.code, value)
    return value


_ACCEPTED: Mapping[str, Any] = {
    "string": str,
    "bytes": str,
    "records": str,
    "uuid": str,
    "bool": bool,
    "float64": float | int,
}
