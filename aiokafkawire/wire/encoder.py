"""Compile the encoder of one (message class, version) pair from generated source.

The generated function is `encode(m, w)`: it walks message `m` and calls `w` with buffers in wire
order. It validates only what encoding needs; `diagnostics` turns its errors into readable ones.
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aiokafkawire.wire.codegen import FunctionSource, VersionLayout
from aiokafkawire.wire.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    Primitive,
    encode_unsigned_varint,
)
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, schema_for

__all__ = ("Encoder", "FieldNotInVersion", "encode_tagged_fields", "make_encoder")

Encoder = Callable[[Any, Callable[[Buffer], object]], None]

NULL_COUNT = b"\xff" * 4
NULL_STRUCT = repr(b"\xff")
NULL_TAGGED_STRUCT = "one[0]"
"""Null struct in a tagged field: an unsigned varint 0, not an int8 -1. Present is 1 in both."""
SINGLE_BYTES = tuple(bytes((n,)) for n in range(0x80))


class FieldNotInVersion(ValueError):
    """A non-ignorable field is set that the version does not have."""


def make_encoder(cls: type[Message], version: int) -> Encoder:
    """Return the encoder of `cls` in `version`."""
    maker = _EncoderMaker(VersionLayout(version, flexible=cls.is_flexible(version)))
    maker.emit_struct(cls, "m")
    return maker.source.compile("encode", f"encoder of {schema_for(cls).name} v{version}")


def encode_tagged_fields(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Encode tagged fields in tag order. Raises `ValueError` for a duplicate tag."""
    ordered = sorted(fields, key=lambda item: item[0])
    parts = [encode_unsigned_varint(len(ordered))]
    last = -1
    for tag, content in ordered:
        if tag == last:
            raise ValueError(f"duplicate tag {tag}")
        last = tag
        parts += encode_unsigned_varint(tag), encode_unsigned_varint(len(content)), content
    return b"".join(parts)


def _flat(value: Buffer) -> Buffer:
    return memoryview(value).cast("B")


class _EncoderMaker:
    def __init__(self, layout: VersionLayout) -> None:
        self.layout = layout
        self.source = FunctionSource("encode(m, w)")
        self.source.names.update(
            FieldNotInVersion=FieldNotInVersion,
            one=SINGLE_BYTES,
            uvarint=encode_unsigned_varint,
            pack=struct.pack,
            flat=_flat,
            encode_tagged_fields=encode_tagged_fields,
        )
        self._writer = "w"
        self._run: list[tuple[str, str]] = []

    def emit_struct(self, cls: type[Struct], obj: str) -> None:
        """Emit code that writes all fields of the struct in variable `obj`."""
        schema, version = schema_for(cls), self.layout.version
        for item in schema.non_ignorable(version):
            with self.source.block(f"if {self._differs_from_default(item, obj)}:"):
                self.source.line("raise FieldNotInVersion")
        for item in schema.present(version):
            nullable = version in item.nullable
            self._emit_value(item.kind, f"{obj}.{item.name}", nullable, item.compact)
        if self.layout.flexible:
            self._emit_tagged_fields(schema.tagged(version), obj)
            return
        with self.source.block(f"if {obj}.unknown_tagged_fields:"):
            self.source.line("raise FieldNotInVersion")
        self._emit_run()

    def _differs_from_default(self, item: Field, obj: str) -> str:
        default = item.default_value()
        if default is None:
            return f"{obj}.{item.name} is not None"
        return f"{obj}.{item.name} != {self.source.constant('default', default)}"

    def _emit_value(self, kind: TypeKind, expression: str, nullable: bool, compact: bool) -> None:
        compact = compact and self.layout.flexible
        if kind.element is not None:
            self._emit_array(kind.element, expression, nullable, compact)
        elif kind.struct is not None:
            self._emit_nested(kind.struct, expression, nullable)
        elif kind.primitive is not None:
            self._emit_primitive(kind.primitive, expression, nullable, compact)

    def _emit_primitive(
        self, kind: Primitive, expression: str, nullable: bool, compact: bool
    ) -> None:
        if kind.code:
            suffix = ".bytes" if kind.name == "uuid" else ""
            self._run.append((kind.code, expression + suffix))
            return
        value = self.source.name("v")
        self.source.line(f"{value} = {expression}")
        flat = f"{value} if type({value}) is bytes else flat({value})"
        convert = {
            "string": f"{value}.encode()",
            "bytes": flat,
            "records": flat,
        }[kind.name]
        if compact:
            self._emit_compact(kind, value, convert, nullable)
            return
        code = "h" if kind.name == "string" else "i"
        if nullable:
            raw = self.source.name("raw")
            self.source.line(f'{raw} = b"" if {value} is None else {convert}')
            self._run.append((code, f"-1 if {value} is None else len({raw})"))
            value = raw
        else:
            self.source.line(f"{value} = {convert}")
            self._run.append((code, f"len({value})"))
        self._emit_run()
        self.source.line(f"{self._writer}({value})")

    def _emit_compact(self, kind: Primitive, value: str, convert: str, nullable: bool) -> None:
        self._emit_run()
        size = self.source.name("n")
        with self._emit_null_or_value(value, "one[0]", nullable):
            self.source.line(f"{value} = {convert}")
            self.source.line(f"{size} = len({value}) + 1")
            if kind.name == "string":
                with self.source.block(f"if {size} > {MAX_STRING_BYTES + 1}:"):
                    self.source.line("raise ValueError")
            self._emit_write_size(size)
            self.source.line(f"{self._writer}({value})")

    def _emit_write_size(self, size: str) -> None:
        self.source.line(f"{self._writer}(one[{size}] if {size} < 128 else uvarint({size}))")

    def _emit_array(
        self, element: TypeKind, expression: str, nullable: bool, compact: bool
    ) -> None:
        array = self.source.name("a")
        self.source.line(f"{array} = {expression}")
        null = "one[0]" if compact else repr(NULL_COUNT)
        with self._emit_null_or_value(array, null, nullable):
            self._emit_items(element, array, compact)

    def _emit_null_or_value(
        self, value: str, null: str, nullable: bool
    ) -> AbstractContextManager[None]:
        """Emit code that writes `null` for None; return the block for other values."""
        if not nullable:
            return nullcontext()
        self._emit_run()
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{self._writer}({null})")
        return self.source.block("else:")

    def _emit_items(self, element: TypeKind, array: str, compact: bool) -> None:
        count = self.source.name("n")
        self.source.line(f"{count} = len({array})")
        if compact:
            self._emit_run()
            size = self.source.name("n")
            self.source.line(f"{size} = {count} + 1")
            self._emit_write_size(size)
        else:
            self._run.append(("i", count))
            self._emit_run()
        if element.primitive is not None and len(element.primitive.code) == 1:
            code = element.primitive.code
            self.source.line(f'{self._writer}(pack(f">{{{count}}}{code}", *{array}))')
            return
        item = self.source.name("m")
        with self.source.block(f"for {item} in {array}:"):
            if element.struct is not None:
                self.emit_struct(element.struct, item)
            else:
                self._emit_value(element, item, nullable=False, compact=True)
                self._emit_run()

    def _emit_nested(
        self, cls: type[Struct], expression: str, nullable: bool, null: str = NULL_STRUCT
    ) -> None:
        obj = self.source.name("m")
        self.source.line(f"{obj} = {expression}")
        with self._emit_null_or_value(obj, null, nullable):
            if nullable:
                self.source.line(f"{self._writer}(one[1])")
            self.emit_struct(cls, obj)

    def _emit_tagged_fields(self, fields: Sequence[Field], obj: str) -> None:
        run = [*self._run]
        tests = [
            f"{obj}.unknown_tagged_fields",
            *(self._differs_from_default(item, obj) for item in fields),
        ]
        section = self.source.name("t")
        with self.source.block(f"if {' or '.join(tests)}:"):
            self._emit_run()
            self.source.line(f"{section} = list({tests[0]})")
            if fields:
                taken = self.source.constant("taken", {item.tag for item in fields})
                with self.source.block(f"if any(tag in {taken} for tag, _ in {section}):"):
                    self.source.line("raise ValueError")
            for item, test in zip(fields, tests[1:], strict=True):
                with self.source.block(f"if {test}:"):
                    self._emit_tagged_field(item, obj, section)
            self.source.line(f"{self._writer}(encode_tagged_fields({section}))")
        with self.source.block("else:"):  # The count 0 goes with the numbers before it.
            self._run = [*run, ("B", "0")] if run else []
            self._emit_run()
            if not run:
                self.source.line(f"{self._writer}(one[0])")

    def _emit_tagged_field(self, item: Field, obj: str, section: str) -> None:
        parts, outer = self.source.name("parts"), self._writer
        self._writer = self.source.name("w")
        self.source.line(f"{parts} = []")
        self.source.line(f"{self._writer} = {parts}.append")
        nullable = self.layout.version in item.nullable
        if item.kind.struct is not None:
            self._emit_nested(item.kind.struct, f"{obj}.{item.name}", nullable, NULL_TAGGED_STRUCT)
        else:
            self._emit_value(item.kind, f"{obj}.{item.name}", nullable, item.compact)
        self._emit_run()
        self._writer = outer
        self.source.line(f'{section}.append(({item.tag}, b"".join({parts})))')

    def _emit_run(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        pack = self.source.constant("pack", self.source.struct(codes).pack)
        values = ", ".join(value for _, value in self._run)
        self.source.line(f"{self._writer}({pack}({values}))")
        self._run.clear()
