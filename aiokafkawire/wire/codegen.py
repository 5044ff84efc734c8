"""Python source under construction: what the encoder's and the decoder's makers share."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafkawire.wire.schema import Field, Struct, TypeKind, schema_for

__all__ = ("FunctionSource", "VersionLayout")


class VersionLayout:
    """How values look in one version: which of them are compact, and how small they can be."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def min_size_bytes(self, kind: TypeKind, *, compact: bool = True) -> int:
        """The fewest bytes that a value of `kind` takes, at least 1.

        An array's count times this may not exceed the bytes that remain.
        """
        if kind.struct is not None:
            return max(1, self._min_struct_bytes(kind.struct))
        if kind.primitive is not None and kind.primitive.size_bytes:
            return kind.primitive.size_bytes
        if compact and self.flexible:
            return 1
        return 2 if kind.primitive is not None and kind.primitive.name == "string" else 4

    def _min_struct_bytes(self, cls: type[Struct]) -> int:
        total = 1 if self.flexible else 0
        for item in schema_for(cls).present(self.version):
            if item.kind.struct is not None and self.version in item.nullable:
                total += 1
            else:
                total += self.min_size_bytes(item.kind, compact=item.compact)
        return total


class FunctionSource:
    """Lines of one function, and the names that they use."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def {signature}:"]
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._name_count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is written inside under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A name that is not yet used."""
        self._name_count += 1
        return f"{prefix}{self._name_count}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for `value`, which the function will find in its globals."""
        name = self.name(prefix)
        self.names[name] = value
        return name

    def default(self, item: Field) -> str:
        """What makes the value of a field that is not on the wire, a new one each time."""
        default = item.default_value()
        if isinstance(default, list):
            return "[]"
        if isinstance(default, Struct):
            return self.constant("Class", type(default)) + "()"
        if default is None or isinstance(default, bool | int | str | bytes):
            return repr(default)
        return self.constant("default", default)

    def struct(self, codes: str) -> struct.Struct:
        return struct.Struct(">" + codes)

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Run the source and return the function of that name; tracebacks show `title`."""
        code = compile("\n".join(self.lines) + "\n", f"<{title}>", "exec")
        exec(code, self.names)  # the source is made from class declarations alone
        made: Callable[..., Any] = self.names[function]
        return made
