"""Find the field and the position of an encoding or decoding error.

Encoders and decoders do not track their position. When one fails, the slower walkers of this
module process the message again, so that the error names the field path and the byte offset.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from aiokafkawire.errors import MalformedMessage, UnsupportedVersion
from aiokafkawire.wire.codegen import VersionLayout
from aiokafkawire.wire.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    BufferOverrun,
    Primitive,
    check_string,
    decode_unsigned_varint,
)
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, schema_for

__all__ = (
    "check_default",
    "diagnose_decode_error",
    "diagnose_encode_error",
    "trailing_bytes_error",
)

MAX_DIAGNOSED_VALUES = 100_000
"""Limit of a walk, so that a malformed message cannot block the event loop for long."""


def diagnose_decode_error(cls: type[Message], version: int, data: Buffer) -> MalformedMessage:
    """Return the error for bytes that the decoder of this class and version rejected."""
    view = memoryview(data)
    walker = _DecodeWalker(view, VersionLayout(version, flexible=cls.is_flexible(version)))
    try:
        walker.struct(cls)
        reason, position = "the bytes could not be decoded", walker.position
    except _Malformed as malformed:
        reason, position = str(malformed), walker.position
    return MalformedMessage(
        reason,
        message=schema_for(cls).name,
        version=version,
        field=_format_path(walker.path) or None,
        position=position,
    )


def trailing_bytes_error(
    cls: type[Message], version: int, data: Buffer, end: int
) -> MalformedMessage:
    """Return the error for bytes after the `end` of a message."""
    return MalformedMessage(
        f"{len(data) - end} trailing bytes",
        message=schema_for(cls).name,
        version=version,
        position=end,
    )


def diagnose_encode_error(message: Message, version: int, error: Exception) -> Exception:
    """Return a descriptive error for a message that its encoder rejected with `error`."""
    cls = type(message)
    walker = _EncodeWalker(VersionLayout(version, flexible=cls.is_flexible(version)))
    prefix = f"{schema_for(cls).name} v{version}"
    try:
        walker.struct(cls, message)
    except (UnsupportedVersion, TypeError, ValueError) as diagnosed:
        return type(diagnosed)(f"{prefix}, field {_format_path(walker.path)}: {diagnosed}")
    return type(error)(f"{prefix}: {error}")


def check_default(item: Field, version: int, obj: Struct) -> None:
    """Raise `UnsupportedVersion` if a field that the version does not have is set."""
    value = getattr(obj, item.name)
    if value != item.default_value():
        raise UnsupportedVersion(
            f"version {version} does not have this field, but it is set to {_abbreviate(value)}"
        )


def _format_path(path: list[str]) -> str:
    return "".join(path).lstrip(".")


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class _Malformed(Exception):
    """The walked message is malformed; the walker's position is the start of the bad value."""


class _Walker:
    def __init__(self, layout: VersionLayout) -> None:
        self.layout = layout
        self.path: list[str] = []

    @contextmanager
    def enter(self, step: str) -> Iterator[None]:
        """Add `step` to the path within the context; keep it there after an exception."""
        self.path.append(step)
        yield
        self.path.pop()


class _FieldStep(NamedTuple):
    """One field of a struct, as the walkers need it."""

    name: str
    kind: TypeKind
    nullable: bool
    compact: bool


_FieldSteps = tuple[tuple[_FieldStep, ...], dict[int | None, Field]]

# Bounded by the number of structs and versions.
_FIELD_STEPS: dict[tuple[type[Struct], int], _FieldSteps] = {}


def _field_steps(cls: type[Struct], version: int) -> _FieldSteps:
    """Return the untagged fields of a struct in wire order, and its tagged fields by tag."""
    field_steps = _FIELD_STEPS.get((cls, version))
    if field_steps is None:
        schema = schema_for(cls)
        steps = tuple(
            _FieldStep("." + item.name, item.kind, version in item.nullable, item.compact)
            for item in schema.present(version)
        )
        known = {item.tag: item for item in schema.tagged(version)}
        field_steps = _FIELD_STEPS[cls, version] = steps, known
    return field_steps


class _DecodeWalker(_Walker):
    """Reads a message as its decoder does, but keeps only the path and the position.

    After an error `path` leads to the bad value. Hot loops update it directly, without `enter`.
    """

    def __init__(self, view: memoryview, layout: VersionLayout) -> None:
        super().__init__(layout)
        self.view = view
        self.position = 0
        self.values_left = MAX_DIAGNOSED_VALUES

    def struct(self, cls: type[Struct]) -> None:
        steps, known = _field_steps(cls, self.layout.version)
        for step in steps:
            self.path.append(step.name)
            self.value(step.kind, step.nullable, step.compact)
            self.path.pop()
        if self.layout.flexible:
            self.tagged(known)

    def tagged(self, known: dict[int | None, Field]) -> None:
        with self.enter(".tagged fields"):
            start = self.position
            count = self.unsigned_varint()
            if count * 2 > len(self.view) - self.position:
                self.malformed(f"{count} tagged fields do not fit into the remaining bytes", start)
            seen: set[int] = set()
            for _ in range(count):
                self.tagged_field(known, seen)

    def tagged_field(self, known: dict[int | None, Field], seen: set[int]) -> None:
        start = self.position
        tag = self.unsigned_varint()
        size = self.unsigned_varint()
        end = self.position + size
        if end > len(self.view):
            self.malformed(f"size {size} of tag {tag} exceeds the remaining bytes", start)
        if tag in seen:
            self.malformed(f"duplicate tag {tag}", start)
        seen.add(tag)
        item = known.get(tag)
        if item is None:
            self.position = end
            return
        with self.enter("." + item.name):
            nullable = self.layout.version in item.nullable
            self.value(item.kind, nullable, item.compact, tagged=True)
            if self.position != end:
                self.malformed(f"the value of tag {tag} does not take {size} bytes", start)

    def value(self, kind: TypeKind, nullable: bool, compact: bool, tagged: bool = False) -> None:
        self.values_left -= 1
        if self.values_left < 0:
            self.malformed(
                f"malformed after the first {MAX_DIAGNOSED_VALUES} values", self.position
            )
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
            self.malformed(
                "null, where null is not allowed" if count == -1 else "negative count", start
            )
        if count * self.layout.min_size_bytes(element) > len(self.view) - self.position:
            self.malformed(f"{count} elements do not fit into the remaining bytes", start)
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
            self.malformed(
                "null, where null is not allowed" if size == -1 else "negative length", start
            )
        if size > len(self.view) - self.position:
            self.malformed(f"length {size} exceeds the remaining bytes", start)
        if kind.name == "string":
            if size > MAX_STRING_BYTES:
                self.malformed(
                    f"string of {size} bytes exceeds the limit of {MAX_STRING_BYTES}", start
                )
            try:
                str(self.view[self.position : self.position + size], "utf-8")
            except UnicodeDecodeError as error:
                self.malformed("invalid UTF-8", self.position + error.start)
        self.position += size

    def size(self, code: str, compact: bool) -> int:
        if compact:
            return self.unsigned_varint() - 1
        return int(self.fixed(code, struct.calcsize(">" + code)))

    def fixed(self, code: str, size: int) -> Any:
        if self.position + size > len(self.view):
            self.malformed("the message ends inside a value", self.position)
        value = struct.unpack_from(">" + code, self.view, self.position)[0]
        self.position += size
        return value

    def unsigned_varint(self) -> int:
        try:
            value, self.position = decode_unsigned_varint(self.view, self.position)
        except BufferOverrun as error:
            raise _Malformed(str(error)) from None
        return value

    def malformed(self, reason: str, position: int) -> None:
        self.position = position
        raise _Malformed(reason)


class _EncodeWalker(_Walker):
    """Validates every value of a message against its field."""

    def struct(self, cls: type[Struct], obj: Any) -> None:
        if not isinstance(obj, cls):
            raise TypeError(f"{_abbreviate(obj)} is not a {cls.__name__}")
        schema, version = schema_for(cls), self.layout.version
        for item in schema.non_ignorable(version):
            with self.enter("." + item.name):
                check_default(item, version, obj)
        for item in (*schema.present(version), *schema.tagged(version)):
            with self.enter("." + item.name):
                self.value(item.kind, getattr(obj, item.name), version in item.nullable)
        with self.enter(".unknown_tagged_fields"):
            self.unknown(obj.unknown_tagged_fields, {item.tag for item in schema.tagged(version)})

    def unknown(self, fields: Sequence[tuple[int, bytes]], known: set[int | None]) -> None:
        if fields and not self.layout.flexible:
            raise UnsupportedVersion("tagged fields exist in flexible versions only")
        tags = [tag for tag, _ in fields]
        if len(set(tags)) < len(tags) or known.intersection(tags):
            raise ValueError(f"duplicate tags, or tags of known fields: {tags}")

    def value(self, kind: TypeKind, value: Any, nullable: bool) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"None is not allowed in version {self.layout.version}")
        elif kind.element is not None:
            if not isinstance(value, list | tuple):
                raise TypeError(f"{_abbreviate(value)} is not a list")
            for index, item in enumerate(value):
                with self.enter(f"[{index}]"):
                    self.value(kind.element, item, False)
        elif kind.struct is not None:
            self.struct(kind.struct, value)
        elif kind.primitive is not None:
            self.primitive(kind.primitive, value)

    def primitive(self, kind: Primitive, value: Any) -> None:
        accepted = _ACCEPTED.get(kind.name, int)
        if not isinstance(value, accepted):
            raise TypeError(f"{_abbreviate(value)} is not a valid {kind.name}")
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
