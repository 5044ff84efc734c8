"""Why a message could not be decoded or encoded, and where.

Encoders and decoders do not keep track of where they are. When one fails, the message is walked
once more by the slow functions in here, which do, so that the error can name the field's path and
the byte offset.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.errors import MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    BufferOverrun,
    Primitive,
    check_string,
    decode_unsigned_varint,
)
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, schema_of
from aiokafkawire.wire.source import Layout

__all__ = ("explain_decoding", "explain_encoding", "require_default", "trailing_bytes")

MAX_VALUES = 100_000
"""How far the slow way through a message goes: longer, and whoever sends it could stop others."""


def explain_decoding(cls: type[Message], version: int, data: Buffer) -> MalformedMessage:
    """The error for bytes that the decoder of this class and version refused."""
    view = memoryview(data)
    walk = _DecodeWalk(view, Layout(version, flexible=cls.is_flexible(version)))
    try:
        walk.struct(cls)
        reason, position = "the bytes could not be decoded", walk.position
    except _Stop as stop:
        reason, position = str(stop), walk.position
    return MalformedMessage(
        reason,
        message=schema_of(cls).name,
        version=version,
        field=_dotted(walk.path) or None,
        position=position,
    )


def trailing_bytes(cls: type[Message], version: int, data: Buffer, end: int) -> MalformedMessage:
    """The error for bytes that begin with a message and go on after its `end`."""
    return MalformedMessage(
        f"{len(data) - end} trailing bytes",
        message=schema_of(cls).name,
        version=version,
        position=end,
    )


def explain_encoding(message: Message, version: int, error: Exception) -> Exception:
    """The error for a message that its encoder of this version refused with `error`."""
    cls = type(message)
    walk = _EncodeWalk(Layout(version, flexible=cls.is_flexible(version)))
    where = f"{schema_of(cls).name} v{version}"
    try:
        walk.struct(cls, message)
    except (UnsupportedVersion, TypeError, ValueError) as found:
        return type(found)(f"{where}, field {_dotted(walk.path)}: {found}")
    return type(error)(f"{where}: {error}")


def require_default(item: Field, version: int, obj: Struct) -> None:
    """Raise `UnsupportedVersion` if a field that the version lacks is set."""
    value = getattr(obj, item.name)
    if value != item.default_value():
        raise UnsupportedVersion(
            f"version {version} has no such field, and it is set to {_short(value)}"
        )


def _dotted(path: list[str]) -> str:
    return "".join(path).lstrip(".")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class _Stop(Exception):
    """Decoding ends here; the walk's position is where the bad value begins."""


class _Walk:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.path: list[str] = []

    @contextmanager
    def inside(self, step: str) -> Iterator[None]:
        """Be at `step` of the path; stay there when what is inside fails."""
        self.path.append(step)
        yield
        self.path.pop()


class _Step(NamedTuple):
    """A field on the way through a struct."""

    name: str
    kind: TypeKind
    nullable: bool
    compact: bool


_Steps = tuple[tuple[_Step, ...], dict[int | None, Field]]

# As many entries as there are structs and versions, at most.
_STEPS: dict[tuple[type[Struct], int], _Steps] = {}


def _steps(cls: type[Struct], version: int) -> _Steps:
    """The way through a struct, and its tagged fields by tag."""
    found = _STEPS.get((cls, version))
    if found is None:
        schema = schema_of(cls)
        steps = tuple(
            _Step("." + item.name, item.kind, version in item.nullable, item.compact)
            for item in schema.present(version)
        )
        known = {item.tag: item for item in schema.tagged(version)}
        found = _STEPS[cls, version] = steps, known
    return found


class _DecodeWalk(_Walk):
    """Reads as a decoder does, keeping nothing but the path.

    What it stops at stays in the path; where there are many steps they are taken without `inside`.
    """

    def __init__(self, view: memoryview, layout: Layout) -> None:
        super().__init__(layout)
        self.view = view
        self.position = 0
        self.values_left = MAX_VALUES

    def struct(self, cls: type[Struct]) -> None:
        steps, known = _steps(cls, self.layout.version)
        for step in steps:
            self.path.append(step.name)
            self.value(step.kind, step.nullable, step.compact)
            self.path.pop()
        if self.layout.flexible:
            self.tagged(known)

    def tagged(self, known: dict[int | None, Field]) -> None:
        with self.inside(".tagged fields"):
            start = self.position
            count = self.unsigned_varint()
            if count * 2 > len(self.view) - self.position:
                self.stop(f"{count} tagged fields cannot be in the bytes that remain", start)
            seen: set[int] = set()
            for _ in range(count):
                self.tagged_field(known, seen)

    def tagged_field(self, known: dict[int | None, Field], seen: set[int]) -> None:
        start = self.position
        tag = self.unsigned_varint()
        size = self.unsigned_varint()
        end = self.position + size
        if end > len(self.view):
            self.stop(f"tag {tag} has {size} bytes, more than remain", start)
        if tag in seen:
            self.stop(f"tag {tag} comes twice", start)
        seen.add(tag)
        item = known.get(tag)
        if item is None:
            self.position = end
            return
        with self.inside("." + item.name):
            nullable = self.layout.version in item.nullable
            self.value(item.kind, nullable, item.compact, tagged=True)
            if self.position != end:
                self.stop(f"tag {tag} does not end where its size of {size} bytes says", start)

    def value(self, kind: TypeKind, nullable: bool, compact: bool, tagged: bool = False) -> None:
        self.values_left -= 1
        if self.values_left < 0:
            self.stop(f"malformed somewhere behind the first {MAX_VALUES} values", self.position)
        compact = compact and self.layout.flexible
        if kind.element is not None:
            self.array(kind.element, nullable, compact)
        elif kind.struct is not None:
            if not nullable or self.size("b", compact=tagged) >= 0:
                self.struct(kind.struct)
        elif kind.primitive is not None and kind.primitive.code:
            self.fixed(kind.primitive.code, kind.primitive.size_bytes)
        elif kind.primitive is not None:
            self.variable(kind.primitive, nullable, compact)

    def array(self, element: TypeKind, nullable: bool, compact: bool) -> None:
        start = self.position
        count = self.size("i", compact)
        if count == -1 and nullable:
            return
        if count < 0:
            self.stop("null, where null is not allowed" if count == -1 else "negative count", start)
        if count * self.layout.min_size_bytes(element) > len(self.view) - self.position:
            self.stop(f"{count} elements cannot be in the bytes that remain", start)
        for index in range(count):
            self.path.append(f"[{index}]")
            self.value(element, False, True)
            self.path.pop()

    def variable(self, kind: Primitive, nullable: bool, compact: bool) -> None:
        start = self.position
        size = self.size("h" if kind.name == "string" else "i", compact)
        if size == -1 and nullable:
            return
        if size < 0:
            self.stop("null, where null is not allowed" if size == -1 else "negative length", start)
        if size > len(self.view) - self.position:
            self.stop(f"length {size} is beyond the bytes that remain", start)
        if kind.name == "string":
            if size > MAX_STRING_BYTES:
                self.stop(f"a string of {size} bytes is over {MAX_STRING_BYTES}", start)
            try:
                str(self.view[self.position : self.position + size], "utf-8")
            except UnicodeDecodeError as error:
                self.stop("invalid UTF-8", self.position + error.start)
        self.position += size

    def size(self, code: str, compact: bool) -> int:
        if compact:
            return self.unsigned_varint() - 1
        return int(self.fixed(code, struct.calcsize(">" + code)))

    def fixed(self, code: str, size: int) -> Any:
        if self.position + size > len(self.view):
            self.stop("the message ends inside a value", self.position)
        value = struct.unpack_from(">" + code, self.view, self.position)[0]
        self.position += size
        return value

    def unsigned_varint(self) -> int:
        try:
            value, self.position = decode_unsigned_varint(self.view, self.position)
        except BufferOverrun as error:
            raise _Stop(str(error)) from None
        return value

    def stop(self, reason: str, position: int) -> None:
        self.position = position
        raise _Stop(reason)


class _EncodeWalk(_Walk):
    """Checks every value of a message against its field."""

    def struct(self, cls: type[Struct], obj: Any) -> None:
        if not isinstance(obj, cls):
            raise TypeError(f"{_short(obj)} is not a {cls.__name__}")
        schema, version = schema_of(cls), self.layout.version
        for item in schema.refused(version):
            with self.inside("." + item.name):
                require_default(item, version, obj)
        for item in (*schema.present(version), *schema.tagged(version)):
            with self.inside("." + item.name):
                self.value(item.kind, getattr(obj, item.name), version in item.nullable)
        with self.inside(".unknown_tagged_fields"):
            self.unknown(obj.unknown_tagged_fields, {item.tag for item in schema.tagged(version)})

    def unknown(self, fields: list[tuple[int, bytes]], known: set[int | None]) -> None:
        if fields and not self.layout.flexible:
            raise UnsupportedVersion("tagged fields exist in flexible versions only")
        tags = [tag for tag, _ in fields]
        if len(set(tags)) < len(tags) or known.intersection(tags):
            raise ValueError(f"a tag comes twice, or has a field of its own: {tags}")

    def value(self, kind: TypeKind, value: Any, nullable: bool) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"None is not allowed in version {self.layout.version}")
        elif kind.element is not None:
            if not isinstance(value, list | tuple):
                raise TypeError(f"{_short(value)} is not a list")
            for index, item in enumerate(value):
                with self.inside(f"[{index}]"):
                    self.value(kind.element, item, False)
        elif kind.struct is not None:
            self.struct(kind.struct, value)
        elif kind.primitive is not None:
            self.primitive(kind.primitive, value)

    def primitive(self, kind: Primitive, value: Any) -> None:
        accepted = _ACCEPTED.get(kind.name, int)
        if not isinstance(value, accepted):
            raise TypeError(f"{_short(value)} is not a value for {kind.name}")
        if kind.name == "string":
            check_string(value)
        if accepted is int:
            try:
                struct.pack(">" + kind.code, value)
            except struct.error:
                raise ValueError(f"{value} is out of range for {kind.name}") from None


_ACCEPTED: dict[str, Any] = {
    "string": str,
    "bytes": bytes | bytearray | memoryview,
    "records": bytes | bytearray | memoryview,
    "bool": object,
    "float64": float | int,
    "uuid": UUID,
}
