"""Arrays of structs that are validated at decoding but become objects on first access.

The longest arrays, those of partitions, hold numbers and short arrays of numbers, and mostly every
element has the layout of the first: all partitions of a topic have the same number of replicas.
Validation then only compares the lengths within the elements, by slices. The decoder handles all
other arrays, including malformed ones, which it rejects. `iter_fields` reads an array without
making objects of its elements.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any, cast

from aiokafkawire.wire.codegen import FunctionSource, VersionLayout
from aiokafkawire.wire.primitives import Primitive, uuid_from_bytes
from aiokafkawire.wire.schema import Field, FieldTuples, LazyArray, LazyStruct, Struct, schema_for

__all__ = (
    "MAX_ELEMENT_LAYOUTS",
    "MAX_INNER_LENGTH",
    "MIN_LAZY_LENGTH",
    "LazyArrays",
    "iter_fields",
    "supports_lazy_arrays",
)

MIN_LAZY_LENGTH = 8
"""Minimum length: below it, decoding at once is faster."""
MAX_INNER_LENGTH = 16
"""Maximum length of the arrays within elements."""
MAX_ELEMENT_LAYOUTS = 64
"""Maximum number of cached element layouts per struct; each has a compiled function."""

_ArrayCounts = tuple[int, ...]
"""The encoded count of each array of an element: its length, plus one if compact."""


def supports_lazy_arrays(cls: type[Struct], version: int) -> bool:
    """Return True if the struct has only numbers, UUIDs and arrays of numbers."""
    fields = schema_for(cls).present(version)
    return bool(fields) and all(_is_number_or_array(item) for item in fields)


def iter_fields(message: LazyStruct, name: str, *fields: str) -> FieldTuples:
    """Yield fields of each struct in an array; arrays of numbers are tuples.

    Args:
        message: The struct with the array. The array is not changed by this.
        name: Field of the array, whose structs must have `supports_lazy_arrays`.
        fields: Fields of the structs; by default all of them in their order.
    """
    lazy: LazyArray | None = getattr(message, "_lazy_array", None)
    if lazy is not None and lazy[0] == name:
        _, _, decode_fields, raw = lazy
        return decode_fields(raw, fields)
    return _field_reader(cast("type", type(message)), name, fields)(getattr(message, name))


class LazyArrays:
    """Defers arrays of the field `name` whose elements `cls` have `supports_lazy_arrays`."""

    def __init__(self, name: str, cls: type[Struct], layout: VersionLayout) -> None:
        self._name = name
        self._cls = cls
        self._layout = layout
        self._element_layouts: dict[_ArrayCounts | None, _ElementLayout] = {}

    @cached_property
    def _read_counts(self) -> Callable[[memoryview, int], _ArrayCounts | None]:
        return _make_read_counts(self._cls, self._layout)

    def try_defer(
        self, buf: memoryview, p: int, end: int, count: int
    ) -> tuple[LazyArray, int] | None:
        """Return the deferred array of `count` structs at `p` and its end; None if not uniform."""
        counts = self._read_counts(buf, p)
        element_layout = self._element_layouts.get(counts) or self._add_element_layout(counts)
        if element_layout is None:
            return None
        stop = p + count * element_layout.size
        if stop > end:
            return None
        # A copy, because the caller may reuse the buffer before the first access.
        raw = bytes(buf[p:stop])
        for places, byte in element_layout.constant_bytes:
            if raw[places].strip(byte):
                return None
        return (self._name, element_layout.make_structs, element_layout.iter_fields, raw), stop

    def _add_element_layout(self, counts: _ArrayCounts | None) -> "_ElementLayout | None":
        if counts is None or len(self._element_layouts) == MAX_ELEMENT_LAYOUTS:
            return None
        element_layout = self._element_layouts[counts] = _ElementLayout(
            self._cls, self._layout, counts
        )
        return element_layout


class _ElementLayout:
    """The layout of structs whose arrays have the same lengths.

    Attributes:
        size: Size of one element in bytes.
        constant_bytes: Slices of the array of elements, and the byte that all its positions must
            hold: the counts of inner arrays and of tagged fields.
    """

    def __init__(self, cls: type[Struct], layout: VersionLayout, counts: _ArrayCounts) -> None:
        self._cls = cls
        self._layout = layout
        self._lengths: list[int] = []
        self._field_decoders: dict[tuple[str, ...], Callable[[FieldTuples], FieldTuples]] = {}
        codes = ">"
        constant_bytes: list[tuple[int, bytes]] = []
        remaining = iter(counts)
        for item in schema_for(cls).present(layout.version):
            code = _element_primitive(item).code
            if item.kind.element is not None:
                count_code, excess = _count_format(item, layout)
                count = next(remaining)
                raw = struct.pack(">" + count_code, count)
                at = struct.calcsize(codes)
                constant_bytes += [(at + n, raw[n : n + 1]) for n in range(len(raw))]
                codes += f"{len(raw)}x"
                code = f"{count - excess}{code}"
                self._lengths.append(count - excess)
            codes += code
        if layout.flexible:
            constant_bytes.append((struct.calcsize(codes), b"\0"))  # zero tagged fields
            codes += "x"
        self._values = struct.Struct(codes)
        self.size = self._values.size
        self.constant_bytes = [(slice(at, None, self.size), byte) for at, byte in constant_bytes]

    def make_structs(self, raw: bytes) -> list[Any]:
        """Decode the bytes of an array into structs."""
        made: list[Any] = []
        self._make(self._values.iter_unpack(raw), made.append)
        return made

    def iter_fields(self, raw: bytes, fields: tuple[str, ...]) -> FieldTuples:
        """Yield fields of each struct of an array, all if none are named."""
        decoder = self._field_decoders.get(fields)
        if decoder is None:
            decoder = self._field_decoders[fields] = self._make_field_decoder(fields)
        return decoder(self._values.iter_unpack(raw))

    @cached_property
    def _make(self) -> Callable[[FieldTuples, Callable[[Any], None]], None]:
        source = FunctionSource("make(elements, add)")
        source.names.update(Class=self._cls, new=object.__new__)
        variables, values = self._variables(source, "[", "]")
        with source.block(f"for [{', '.join(variables)}] in elements:"):
            source.line("m = new(Class)")
            source.line("m.unknown_tagged_fields = ()")
            for name, value in values.items():
                source.line(f"m.{name} = {value}")
            source.line("add(m)")
        return source.compile("make", f"uniform {self._cls.__name__} v{self._layout.version}")

    def _make_field_decoder(self, fields: Sequence[str]) -> Callable[[FieldTuples], FieldTuples]:
        source = FunctionSource("iter_fields(elements)")
        variables, values = self._variables(source, "(", ",)")
        with source.block(f"for [{', '.join(variables)}] in elements:"):
            source.line(f"yield {', '.join(values[name] for name in fields or values)},")
        title = f"fields of uniform {self._cls.__name__} v{self._layout.version}"
        return source.compile("iter_fields", title)

    def _variables(
        self, source: FunctionSource, start: str, end: str
    ) -> tuple[list[str], dict[str, str]]:
        """Return variables for the numbers of an element, and an expression for each field.

        Args:
            source: Function that gets the variables.
            start: Text before the numbers of an array.
            end: Text after them.
        """
        schema, version = schema_for(self._cls), self._layout.version
        source.names.update(uuid=uuid_from_bytes)
        variables: list[str] = []
        values = {item.name: "" for item in schema.fields}
        lengths = iter(self._lengths)
        for item in schema.present(version):
            if item.kind.element is not None:
                numbers = [source.name("v") for _ in range(next(lengths))]
                variables += numbers
                values[item.name] = f"{start}{', '.join(numbers)}{end if numbers else end[-1]}"
                continue
            variables.append(source.name("v"))
            is_uuid = _element_primitive(item).name == "uuid"
            values[item.name] = f"uuid({variables[-1]})" if is_uuid else variables[-1]
        for item in chain(schema.absent(version), schema.tagged(version)):
            default = source.default(item)
            values[item.name] = f"{start}{end[-1]}" if default == "[]" else default
        return variables, values


@cache
def _field_reader(
    cls: type[LazyStruct], name: str, fields: Sequence[str]
) -> Callable[[list[Any]], FieldTuples]:
    """Compile the function that yields the fields of structs; see `iter_fields`."""
    (kind,) = (item.kind.element for item in schema_for(cls).fields if item.name == name)
    assert kind is not None
    assert kind.struct is not None
    values: dict[str, str] = {}
    for item in schema_for(kind.struct).fields:
        value = f"m.{item.name}"
        if item.kind.element is not None:
            value = f"None if {value} is None else tuple({value})"
        values[item.name] = value
    source = FunctionSource("iter_fields(structs)")
    with source.block("for m in structs:"):
        source.line(f"yield {', '.join(values[name] for name in fields or values)},")
    return source.compile("iter_fields", f"fields of {kind.struct.__name__}")


def _make_read_counts(
    cls: type[Struct], layout: VersionLayout
) -> Callable[[memoryview, int], _ArrayCounts | None]:
    """Compile the reader of the counts of an element; it returns None for null or too large."""
    source = FunctionSource("read_counts(buf, p)")
    names: list[str] = []
    skip = 0
    for item in schema_for(cls).present(layout.version):
        size = _element_primitive(item).size_bytes
        if item.kind.element is None:
            skip += size
            continue
        code, excess = _count_format(item, layout)
        count_format = struct.Struct(">" + code)
        names.append(source.name("n"))
        unpack = source.constant("unpack", count_format.unpack_from)
        source.line(f"{names[-1]}, = {unpack}(buf, p + {skip})")
        with source.block(f"if not {excess} <= {names[-1]} <= {MAX_INNER_LENGTH + excess}:"):
            source.line("return None")
        source.line(f"p += {names[-1]} * {size}")
        skip += count_format.size - excess * size
    source.line(f"return ({''.join(name + ', ' for name in names)})")
    return source.compile("read_counts", f"counts of {cls.__name__} v{layout.version}")


def _count_format(item: Field, layout: VersionLayout) -> tuple[str, int]:
    """Return the format of the count of a short array, and its excess over the length."""
    return ("B", 1) if item.compact and layout.flexible else ("i", 0)


def _is_number_or_array(item: Field) -> bool:
    primitive = (item.kind.element or item.kind).primitive
    if primitive is None or not primitive.code:
        return False
    return item.kind.element is None or len(primitive.code) == 1


def _element_primitive(item: Field) -> Primitive:
    primitive = (item.kind.element or item.kind).primitive
    assert primitive is not None
    return primitive
