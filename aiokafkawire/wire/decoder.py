"""Compile the decoder of one (message class, version) pair from generated source.

The generated function is `decode(buf, p, end)`: it reads a message from `buf` at `p`, never past
`end`, and returns the message and the position after it. `buf` is a memoryview for classes that are
`decoded_in_place`, and bytes for all others, whose slices cost less. For malformed bytes the
function raises one of `DECODE_ERRORS` without a position; `diagnostics` then finds the field and
the position.
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from aiokafkawire.wire.codegen import FunctionSource, VersionLayout
from aiokafkawire.wire.lazy_arrays import MIN_LAZY_LENGTH, LazyArrays, supports_lazy_arrays
from aiokafkawire.wire.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    BufferOverrun,
    Primitive,
    decode_unsigned_varint,
    uuid_from_bytes,
)
from aiokafkawire.wire.schema import Field, LazyStruct, Message, Struct, TypeKind, schema_for

__all__ = ("DECODE_ERRORS", "Decoder", "make_decoder")

Decoder = Callable[[Any, int, int], tuple[Any, int]]

DECODE_ERRORS = (struct.error, IndexError, ValueError)
"""Exceptions of a decoder for malformed bytes; ValueError includes UnicodeDecodeError."""

PREMADE_UNPACKERS = 17
"""Number of cached unpackers per type code: shorter arrays need no format string."""


def make_decoder(cls: type[Message], version: int) -> Decoder:
    """Return the decoder of `cls` in `version`."""
    layout = VersionLayout(version, flexible=cls.is_flexible(version))
    maker = _DecoderMaker(layout, in_place=cls.decoded_in_place)
    maker.emit_struct(cls, "m")
    maker.source.line("return m, p")
    return maker.source.compile("decode", f"decoder of {schema_for(cls).name} v{version}")


@cache
def _unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return unpackers of 0, 1, 2 … numbers, because building a format per array is slow."""
    return tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(PREMADE_UNPACKERS))


def _multi_byte_size(buf: Buffer, position: int) -> tuple[int, int]:
    """Read a compact size of several bytes; its first byte is just before `position`."""
    size, position = decode_unsigned_varint(buf, position - 1)
    return size - 1, position


def _tag_count(buf: Buffer, position: int, end: int) -> tuple[int, int]:
    count, position = decode_unsigned_varint(buf, position)
    # A tagged field takes at least its tag and its size.
    if count * 2 > end - position:
        raise BufferOverrun
    return count, position


def _tagged_field(buf: Buffer, position: int, end: int, seen: set[int]) -> tuple[int, int, int]:
    """Read the header of a tagged field; return the tag, and the start and end of its bytes."""
    tag, position = decode_unsigned_varint(buf, position)
    size, position = decode_unsigned_varint(buf, position)
    if position + size > end or tag in seen:
        raise BufferOverrun
    seen.add(tag)
    return tag, position, position + size


def _unknown_fields(
    buf: Buffer, position: int, end: int
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    count, position = _tag_count(buf, position, end)
    fields: list[tuple[int, bytes]] = []
    seen: set[int] = set()
    for _ in range(count):
        tag, position, stop = _tagged_field(buf, position, end, seen)
        fields.append((tag, bytes(buf[position:stop])))
        position = stop
    return tuple(fields), position


_BYTES_SLICES = {"string": "{}.decode()", "bytes": "{}"}
_VIEW_SLICES = {"string": 'str({}, "utf-8")', "bytes": "bytes({})", "records": "{}"}
"""Value of a slice of the buffer, by type."""


class _DecoderMaker:
    def __init__(self, layout: VersionLayout, *, in_place: bool) -> None:
        self.layout = layout
        self._slices = _VIEW_SLICES if in_place else _BYTES_SLICES
        self.source = FunctionSource("decode(buf, p, end)")
        self.source.names.update(
            new=object.__new__,
            Overrun=BufferOverrun,
            long_size=_multi_byte_size,
            unpack_from=struct.unpack_from,
            uuid=uuid_from_bytes,
            tag_count=_tag_count,
            tagged_field=_tagged_field,
            unknown_fields=_unknown_fields,
        )
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []
        self._lazy_objects: set[str] = set()

    def emit_struct(self, cls: type[Struct], obj: str) -> None:
        """Emit code that reads a struct into the new variable `obj`."""
        schema, version = schema_for(cls), self.layout.version
        self.source.line(f"{obj} = new({self.source.constant('Class', cls)})")
        self.source.line(f"{obj}.unknown_tagged_fields = ()")
        if issubclass(cls, LazyStruct):
            self._lazy_objects.add(obj)
        for item in schema.absent(version):
            self._emit_default(item, obj)
        for item in schema.present(version):
            nullable = version in item.nullable
            self._emit_value(item.kind, f"{obj}.{item.name}", nullable, item.compact)
        if self.layout.flexible:
            self._emit_tagged_fields(schema.tagged(version), obj)
        self._emit_run()

    def _emit_default(self, item: Field, obj: str) -> None:
        self.source.line(f"{obj}.{item.name} = {self.source.default(item)}")

    def _emit_value(self, kind: TypeKind, target: str, nullable: bool, compact: bool) -> None:
        compact = compact and self.layout.flexible
        if kind.element is not None:
            self._emit_array(kind.element, target, nullable, compact)
        elif kind.struct is not None:
            self._emit_nested(kind.struct, target, nullable)
        elif kind.primitive is not None:
            self._emit_primitive(kind.primitive, target, nullable, compact)

    def _emit_primitive(self, kind: Primitive, target: str, nullable: bool, compact: bool) -> None:
        if kind.name == "uuid":
            raw = self.source.name("v")
            self._run.append((kind.code, raw))
            self._after_run.append(f"{target} = uuid({raw})")
            return
        if kind.code:
            self._run.append((kind.code, target))
            return
        size = self._emit_size("h" if kind.name == "string" else "i", compact)
        stop = self.source.name("q")
        limit = f" or {size} > {MAX_STRING_BYTES}" if compact and kind.name == "string" else ""
        expression = self._slices[kind.name].format(f"buf[p:{stop}]")
        with self._emit_null_or_value(size, target, nullable):
            self.source.line(f"{stop} = p + {size}")
            with self.source.block(f"if {size} < 0 or {stop} > end{limit}:"):
                self.source.line("raise Overrun")
            self.source.line(f"{target} = {expression}")
            self.source.line(f"p = {stop}")

    def _emit_null_or_value(
        self, size: str, target: str, nullable: bool
    ) -> AbstractContextManager[None]:
        """Set the target to None where the size is -1; what follows is for the other case."""
        if not nullable:
            return nullcontext()
        with self.source.block(f"if {size} == -1:"):
            self.source.line(f"{target} = None")
        return self.source.block("else:")

    def _emit_size(self, code: str, compact: bool) -> str:
        """Read a length or count into a new variable; -1 is null."""
        size = self.source.name("n")
        if compact:
            byte = self._emit_byte()
            self.source.line(f"{size} = {byte} - 1")
            with self.source.block(f"if {size} > 126:"):
                self.source.line(f"{size}, p = long_size(buf, p)")
        else:
            self._run.append((code, size))
            self._emit_run()
        return size

    def _emit_byte(self) -> str:
        """Read a byte, together with the numbers before it; return its expression."""
        byte = self.source.name("b")
        if self._run:
            self._run.append(("B", byte))
            self._emit_run()
        else:
            self.source.line(f"{byte} = buf[p]")
            self.source.line("p += 1")
        return byte

    def _emit_array(self, element: TypeKind, target: str, nullable: bool, compact: bool) -> None:
        count = self._emit_size("i", compact)
        item_bytes = self.layout.min_size_bytes(element)
        with self._emit_null_or_value(count, target, nullable):
            with self.source.block(f"if {count} < 0 or {count} * {item_bytes} > end - p:"):
                self.source.line("raise Overrun")
            with self._emit_unless_lazy(element.struct, target, count):
                self._emit_items(element, target, count)

    def _emit_unless_lazy(
        self, cls: type[Struct] | None, target: str, count: str
    ) -> AbstractContextManager[None]:
        """Emit code that defers a uniform array of structs; return the block for other arrays."""
        obj, _, name = target.partition(".")
        if (
            cls is None
            or obj not in self._lazy_objects
            or not supports_lazy_arrays(cls, self.layout.version)
        ):
            return nullcontext()
        self._lazy_objects.remove(obj)  # A `LazyStruct` has room for one deferred array.
        arrays = self.source.constant("arrays", LazyArrays(name, cls, self.layout))
        lazy = self.source.name("lazy")
        try_defer = f"{arrays}.try_defer(buf, p, end, {count})"
        self.source.line(f"{lazy} = {try_defer} if {count} >= {MIN_LAZY_LENGTH} else None")
        self.source.line(f"{obj}._lazy_array = None")
        with self.source.block(f"if {lazy} is not None:"):
            self.source.line(f"{obj}._lazy_array, p = {lazy}")
        return self.source.block("else:")

    def _emit_items(self, element: TypeKind, target: str, count: str) -> None:
        if element.primitive is not None and len(element.primitive.code) == 1:
            code, size = element.primitive.code, element.primitive.size_bytes
            unpackers = self.source.constant("unpackers", _unpackers(code))
            short, long = (
                f"{unpackers}[{count}](buf, p)",
                f'unpack_from(f">{{{count}}}{code}", buf, p)',
            )
            self.source.line(
                f"{target} = list({short} if {count} < {PREMADE_UNPACKERS} else {long})"
            )
            self.source.line(f"p += {count} * {size}")
            return
        items, add, item = (self.source.name(prefix) for prefix in ("a", "add", "m"))
        self.source.line(f"{target} = {items} = []")
        with self.source.block(f"if {count}:"):  # A loop costs more than an empty list.
            self.source.line(f"{add} = {items}.append")
            with self.source.block(f"for _ in range({count}):"):
                if element.struct is not None:
                    self.emit_struct(element.struct, item)
                else:
                    self._emit_value(element, item, nullable=False, compact=True)
                    self._emit_run()
                self.source.line(f"{add}({item})")

    def _emit_nested(
        self, cls: type[Struct], target: str, nullable: bool, tagged: bool = False
    ) -> None:
        obj = self.source.name("m")
        if not nullable:
            self._emit_run()
            self.emit_struct(cls, obj)
            self.source.line(f"{target} = {obj}")
            return
        # Null is a negative int8, or an unsigned varint of 0 if the struct is a tagged field.
        size = self._emit_size("b", compact=tagged)
        with self.source.block(f"if {size} < 0:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.emit_struct(cls, obj)
            self.source.line(f"{target} = {obj}")

    def _emit_tagged_fields(self, fields: Sequence[Field], obj: str) -> None:
        for item in fields:
            self._emit_default(item, obj)
        first = self._emit_byte()  # of the count, which mostly is 0
        with self.source.block(f"if {first}:"):
            self.source.line("p -= 1")
            if fields:
                self._emit_known_tagged_fields(fields, obj)
            else:
                self.source.line(f"{obj}.unknown_tagged_fields, p = unknown_fields(buf, p, end)")

    def _emit_known_tagged_fields(self, fields: Sequence[Field], obj: str) -> None:
        count, seen, tag, stop = (self.source.name(x) for x in ("n", "seen", "tag", "q"))
        self.source.line(f"{count}, p = tag_count(buf, p, end)")
        self.source.line(f"{seen} = set()")
        with self.source.block(f"for _ in range({count}):"):
            self.source.line(f"{tag}, p, {stop} = tagged_field(buf, p, end, {seen})")
            for item in fields:
                with self.source.block(f"if {tag} == {item.tag}:"):
                    self._emit_tagged_field(item, obj, stop)
            self.source.line(f"{obj}.unknown_tagged_fields += (({tag}, bytes(buf[p:{stop}])),)")
            self.source.line(f"p = {stop}")

    def _emit_tagged_field(self, item: Field, obj: str, stop: str) -> None:
        nullable = self.layout.version in item.nullable
        if item.kind.struct is not None:
            self._emit_nested(item.kind.struct, f"{obj}.{item.name}", nullable, tagged=True)
        else:
            self._emit_value(item.kind, f"{obj}.{item.name}", nullable, item.compact)
        self._emit_run()
        with self.source.block(f"if p != {stop}:"):
            self.source.line("raise Overrun")
        self.source.line("continue")

    def _emit_run(self) -> None:
        if self._run:
            codes = "".join(code for code, _ in self._run)
            layout = self.source.struct(codes)
            unpack = self.source.constant("unpack", layout.unpack_from)
            targets = ", ".join(target for _, target in self._run)
            self.source.line(f"{targets}, = {unpack}(buf, p)")
            self.source.line(f"p += {layout.size}")
            self._run.clear()
        for text in self._after_run:
            self.source.line(text)
        self._after_run.clear()
