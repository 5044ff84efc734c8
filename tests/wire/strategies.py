"""Messages of any class and version, drawn from their schemas."""

from typing import Any

from hypothesis import strategies as st

from aiokafkawire import wire
from aiokafkawire.wire.lazy_arrays import MIN_LAZY_LENGTH
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, schema_for

_WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

_OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(st.characters(codec="utf-8"), max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200).map(memoryview),
    "uuid": st.uuids(version=None) | st.just(wire.ZERO_UUID),
}

# Far above every tag that a field has.
_UNKNOWN = st.lists(
    st.tuples(st.integers(100, 2**32 - 1), st.binary(max_size=8)),
    max_size=2,
    unique_by=lambda item: item[0],
).map(lambda fields: tuple(sorted(fields)))


def classes_and_versions() -> st.SearchStrategy[tuple[type[Message], int]]:
    return st.sampled_from(
        [
            (cls, version)
            for cls in map(wire.message_class, wire.message_names())
            for version in range(cls.min_version, cls.max_version + 1)
        ]
    )


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, int]:
    cls, version = draw(classes_and_versions())
    message = draw(_struct(cls, version, cls.is_flexible(version)))
    assert isinstance(message, Message)
    return message, version


@st.composite
def _struct(draw: st.DrawFn, cls: type[Struct], version: int, flexible: bool) -> Struct:
    values = {
        item.name: draw(_field(item, version, flexible))
        for item in schema_for(cls).fields
        if version in item.versions
    }
    if flexible:
        values["unknown_tagged_fields"] = draw(_UNKNOWN)
    return cls(**values)


def _field(item: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = _value(item.kind, version, flexible)
    return st.none() | values if version in item.nullable else values


def _value(kind: TypeKind, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        one = _value(kind.element, version, flexible)
        # Sometimes enough elements for a lazy array.
        return st.lists(one, max_size=2) | one.map(lambda element: [element] * MIN_LAZY_LENGTH)
    if kind.struct is not None:
        return _struct(kind.struct, version, flexible)
    assert kind.primitive is not None
    name = kind.primitive.name
    if name in _WIDTHS:
        bits = _WIDTHS[name]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return _OTHERS[name]
