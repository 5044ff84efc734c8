"""Declare message classes: their fields, and the versions that have each field on the wire.

A message looks like its page in the protocol guide:

    @request(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Request["HeartbeatResponse"]):
        group_id: str
        generation_id: int32
        member_id: str
        group_instance_id: str | None = field(versions="3+", default=None)

The decorators make a keyword-only dataclass with slots and attach a `StructSchema` to the class,
from which `codec` compiles encoders and decoders. `X | None` is nullable in all versions unless
`nullable=` limits them. A field whose type changes between versions is declared as two fields with
disjoint versions.
"""

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)
from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, Primitive

__all__ = (
    "ALL",
    "NO_VERSIONS",
    "Field",
    "FieldTuples",
    "LazyArray",
    "LazyStruct",
    "Message",
    "Request",
    "Response",
    "Struct",
    "StructSchema",
    "TypeKind",
    "VersionRange",
    "data",
    "field",
    "request",
    "response",
    "schema_for",
    "struct",
)

T = TypeVar("T")
S = TypeVar("S", bound="type[Struct]")
R_co = TypeVar("R_co", covariant=True, bound="Response")

UNBOUNDED = 32_767

FieldTuples = Iterator[tuple[Any, ...]]

LazyArray = tuple[
    str, Callable[[bytes], list[Any]], Callable[[bytes, tuple[str, ...]], FieldTuples], bytes
]
"""An array that is not decoded yet: its field, functions that decode it (to structs, and to the
fields of each), its bytes."""


class VersionRange(NamedTuple):
    """Versions `low` to `high` inclusive; empty if `high` is below `low`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """Parse `"3"`, `"0-9"`, `"6+"` or `"none"`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), UNBOUNDED)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == UNBOUNDED:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


ALL = VersionRange(0, UNBOUNDED)
NO_VERSIONS = VersionRange(0, -1)


class TypeKind(NamedTuple):
    """The type of a value on the wire, without nullability.

    Exactly one attribute is set: `primitive`, `element` for an array, or `struct`.
    """

    primitive: Primitive | None = None
    element: "TypeKind | None" = None
    struct: "type[Struct] | None" = None


_MISSING: Any = dataclasses.MISSING

STRING = Primitive("string")
BYTES = Primitive("bytes")
BOOL = Primitive("bool", "?", 1)
FLOAT64 = Primitive("float64", "d", 8)
UUID_TYPE = Primitive("uuid", "16s", 16)

_UNIONS: tuple[object, ...] = (Union, types.UnionType)

_PRIMITIVES: Mapping[object, Primitive] = {
    str: STRING,
    bytes: BYTES,
    bool: BOOL,
    float: FLOAT64,
    UUID: UUID_TYPE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field: Python `name`, `wire_name` in Kafka's JSON schemas, type and versions."""

    name: str
    wire_name: str
    kind: TypeKind
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    ignorable: bool
    compact: bool
    default: Any
    default_factory: Callable[[], Any] | None

    @property
    def required(self) -> bool:
        """True if the constructor requires this field."""
        return self.default is _MISSING and self.default_factory is None

    def default_value(self) -> Any:
        """Return the value for versions without this field: the declared default, or zero."""
        if self.default_factory is not None:
            return self.default_factory()
        if self.default is not _MISSING:
            return self.default
        return zero_value(self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class StructSchema:
    """The fields of one class in wire order, and Kafka's name of the message."""

    name: str
    fields: tuple[Field, ...]

    def present(self, version: int) -> tuple[Field, ...]:
        """Return the untagged fields of a version, in wire order."""
        return tuple(
            f
            for f in self.fields
            if version in f.versions and not (f.tag is not None and version in f.tagged)
        )

    def tagged(self, version: int) -> tuple[Field, ...]:
        """Return the tagged fields of a version, ordered by tag."""
        fields = (
            f
            for f in self.fields
            if f.tag is not None and version in f.versions and version in f.tagged
        )
        return tuple(sorted(fields, key=lambda f: f.tag or 0))

    def absent(self, version: int) -> tuple[Field, ...]:
        """Return the fields that a version does not have."""
        return tuple(f for f in self.fields if version not in f.versions)

    def non_ignorable(self, version: int) -> tuple[Field, ...]:
        """Return the fields that a version does not have and that must hold their default."""
        return tuple(f for f in self.absent(version) if not f.ignorable)


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldOptions:
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    tagged: VersionRange | None
    ignorable: bool
    compact: bool
    default: Any
    default_factory: Callable[[], Any] | None
    wire_name: str | None


def field(
    *,
    versions: str = "0+",
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    compact: bool = True,
    name: str | None = None,
) -> Any:
    """Declare a field, with the options of Kafka's message schemas.

    Args:
        versions: Versions with the field on the wire.
        default: Default value.
        default_factory: Factory of the default value.
        nullable: Versions in which it may be null. Default: all, if the type allows None.
        tag: Tag of a tagged field.
        tagged: Versions in which it is a tagged field. Default: all.
        ignorable: Drop a value other than the default in versions without the field, instead of
            raising `UnsupportedVersion`.
        compact: False keeps the old length prefix in flexible versions.
        name: Kafka's name, if it is not the camel case of the Python name.
    """
    return _FieldOptions(
        versions=VersionRange.parse(versions),
        nullable=None if nullable is None else VersionRange.parse(nullable),
        tag=tag,
        tagged=None if tagged is None else VersionRange.parse(tagged),
        ignorable=ignorable,
        compact=compact,
        default=default,
        default_factory=default_factory,
        wire_name=name,
    )


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: S) -> S:
    """Declare a struct nested in messages; it is flexible in the same versions."""
    return _declare(cls, cls.__name__)


def _base_field(*, default: Any) -> Any:
    return dataclasses.field(default=default, repr=False, kw_only=True)


@dataclass_transform(kw_only_default=True, field_specifiers=(_base_field,))
def _base(cls: type[T]) -> type[T]:
    return dataclasses.dataclass(kw_only=True, slots=True)(cls)


@_base
class Struct:
    """Base class of messages and nested structs.

    Attributes:
        unknown_tagged_fields: `(tag, bytes)` of the tagged fields that this package does not know;
            encoding writes them again.
    """

    unknown_tagged_fields: tuple[tuple[int, bytes], ...] = _base_field(default=())


class LazyStruct(Struct):
    """A struct with a possibly long array that is decoded on first access; see `lazy_arrays`."""

    __slots__ = ("_lazy_array",)

    _lazy_array: LazyArray | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            lazy = None if name == "_lazy_array" else getattr(self, "_lazy_array", None)
            if lazy is not None and lazy[0] == name:
                _, make, _, raw = lazy
                setattr(self, name, make(raw))
                self._lazy_array = None
            return object.__getattribute__(self, name)


class Message(Struct):
    """A top-level struct: a request, a response, a header or a data message."""

    __slots__ = ()

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int | None]
    """First flexible version (compact lengths and tagged fields, KIP-482), or None."""

    decoded_in_place: ClassVar[bool] = False
    """True if the bytes are not copied before decoding, because records stay views of them."""

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return True if `version` is flexible (compact lengths and tagged fields)."""
        return cls.flexible_from is not None and version >= cls.flexible_from


class _ApiMessage(Message):
    __slots__ = ()

    api_key: ClassVar[int]
    header_version_overrides: ClassVar[Mapping[int, int]] = types.MappingProxyType({})
    """Header versions by message version, if they do not follow from flexibility."""


class Response(_ApiMessage):
    """A response of a broker."""

    __slots__ = ()

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the ResponseHeader version of a response of `version`."""
        return cls.header_version_overrides.get(version, 1 if cls.is_flexible(version) else 0)

    @classmethod
    def layout_version(cls, version: int, body: memoryview) -> int:
        """Return the version of the layout of `body`, in response to a request of `version`."""
        return version

    @classmethod
    def decode_fallback(cls, version: int, body: memoryview) -> Self | None:
        """Return a message for a `body` that cannot be decoded, e.g. its error code; else None."""
        return None


class Request(_ApiMessage, Generic[R_co]):
    """A request to a broker. The type parameter is the class of its response."""

    __slots__ = ()

    match_response: ClassVar[None] = None
    """Every response is decoded; compare `EncodedRequest`."""

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the RequestHeader version of a request of `version`."""
        return cls.header_version_overrides.get(version, 2 if cls.is_flexible(version) else 1)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def request(*, key: int, versions: str, flexible: str) -> Callable[[S], S]:
    """Declare a request of the API `key`: its released and its flexible versions."""
    return _api_message(key, versions, flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def response(*, key: int, versions: str, flexible: str) -> Callable[[S], S]:
    """Declare a response of the API `key`: its released and its flexible versions."""
    return _api_message(key, versions, flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def data(*, name: str, versions: str, flexible: str) -> Callable[[S], S]:
    """Declare a message that is neither request nor response, with Kafka's `name`."""

    def declare(cls: S) -> S:
        return _versioned(_declare(cls, name), versions, flexible)

    return declare


def schema_for(cls: "type[Struct]") -> StructSchema:
    """Return the schema of a declared class. Raises `TypeError` for any other class."""
    schema = cls.__dict__.get("__wire_schema__")
    if schema is None:
        raise TypeError(f"{cls.__name__} is not a declared message or struct")
    return cast("StructSchema", schema)


def zero_value(kind: TypeKind) -> Any:
    """Return the implicit default of a type: the value for versions without the field."""
    if kind.element is not None:
        return []
    if kind.struct is not None:
        return kind.struct()
    assert kind.primitive is not None
    name = kind.primitive.name
    return _ZERO.get(name, 0)


_ZERO: Mapping[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
}


def _api_message(key: int, versions: str, flexible: str) -> Callable[[S], S]:
    def declare(cls: S) -> S:
        declared = _versioned(_declare(cls, cls.__name__), versions, flexible)
        cast("Any", declared).api_key = key
        return declared

    return declare


def _versioned(cls: S, versions: str, flexible: str) -> S:
    span, flexible_span = VersionRange.parse(versions), VersionRange.parse(flexible)
    message = cast("Any", cls)
    message.min_version, message.max_version = span
    message.flexible_from = None if flexible_span == NO_VERSIONS else flexible_span.low
    return cls


def _declare(cls: S, name: str) -> S:
    fields = tuple(
        _field(cls, attribute, annotation)
        for attribute, annotation in inspect.get_annotations(cls).items()
        if cast("object", get_origin(annotation)) is not ClassVar
    )
    for item in fields:
        if item.required:
            if item.name in cls.__dict__:
                delattr(cls, item.name)
            continue
        made = (
            dataclasses.field(default_factory=item.default_factory)
            if item.default_factory is not None
            else dataclasses.field(default=item.default)
        )
        setattr(cls, item.name, made)
    dataclass_type = cast("Any", dataclasses.dataclass(kw_only=True, slots=True)(cls))
    dataclass_type.__wire_schema__ = StructSchema(name, fields)
    return cast("S", dataclass_type)


def _field(cls: "type[Struct]", name: str, annotation: object) -> Field:
    declared = cls.__dict__.get(name, _MISSING)
    options = declared if isinstance(declared, _FieldOptions) else field(default=declared)
    kind, optional = _kind(annotation)
    if options.nullable is not None and not optional:
        raise TypeError(f"{cls.__name__}.{name} is nullable, so its type must allow None")
    nullable = options.nullable or options.versions
    return Field(
        name=name,
        wire_name=options.wire_name or _camel_case(name),
        kind=kind,
        versions=options.versions,
        nullable=nullable if optional else NO_VERSIONS,
        tag=options.tag,
        tagged=NO_VERSIONS if options.tag is None else options.tagged or options.versions,
        ignorable=options.ignorable,
        compact=options.compact,
        default=options.default,
        default_factory=options.default_factory,
    )


def _kind(annotation: Any) -> tuple[TypeKind, bool]:
    """Return the wire type of an annotation, and True if it allows None."""
    metadata = getattr(annotation, "__metadata__", ())
    if metadata and isinstance(metadata[0], Primitive):
        return TypeKind(primitive=metadata[0]), False
    origin: object = get_origin(annotation)
    if origin in _UNIONS:
        inner = [option for option in get_args(annotation) if option is not type(None)]
        if len(inner) == 1:
            return _kind(inner[0])[0], True
    if origin is list:
        return TypeKind(element=_kind(get_args(annotation)[0])[0]), False
    if annotation in _PRIMITIVES:
        return TypeKind(primitive=_PRIMITIVES[annotation]), False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return TypeKind(struct=annotation), False
    raise TypeError(f"{annotation!r} is not a type of the Kafka protocol")


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
