"""Code generation shared by the encoder and the decoder compilers."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafkawire.wire.schema import Field, Struct, TypeKind, schema_for

__all__ = ("FunctionSource", "VersionLayout")


class VersionLayout:
    """The encoding rules of one version: compact or not, and minimum sizes."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def min_size_bytes(self, kind: TypeKind, *, compact: bool = True) -> int:
        """Return the minimum encoded size of a value of `kind`, at least 1.

        Decoders reject an array whose count times this exceeds the remaining bytes, before they
        allocate memory for it.
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
    """The source of one function under construction, and its globals."""

    def __init__(self, signature: str) -> None:
        self.lines = [f"def {signature}:"]
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._name_count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines added within the context under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """Return an unused variable name."""
        self._name_count += 1
        return f"{prefix}{self._name_count}"

    def constant(self, prefix: str, value: object) -> str:
        """Make `value` a global of the function; return its name."""
        name = self.name(prefix)
        self.names[name] = value
        return name

    def default(self, item: Field) -> str:
        """Return an expression for the default of a field; mutable defaults are new objects."""
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
        """Compile the source and return the function; tracebacks show `title` as its file."""
        code = compile("\n".join(self.lines) + "\n", f"<{title}>", "exec")
        exec(code, self.names)  # The source depends on class declarations only, not on input.
        made: Callable[..., Any] = self.names[function]
        return made
