"""Select the implementation of the hot loops: the compiled `_kernel`, or its Python source.

The environment variable `AIOKAFKAWIRE_PURE_PYTHON=1` selects the source. Without a compiled kernel
the source is used too, with a warning in the log.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aiokafkawire._about import compiled_kernel, is_pure_requested, not_built_reason

__all__ = (
    "COMPILED",
    "RECORD_MIN_BYTES",
    "SOURCE_HASH",
    "Buffer",
    "Header",
    "Headers",
    "Record",
    "RecordBuffer",
    "RecordHandle",
    "ShareRecord",
    "decode_headers",
    "decode_records",
    "decode_varint",
    "encode_varint",
    "fill_binary",
    "load_source",
    "longest",
    "make_records",
    "murmur2",
    "restore",
    "slices",
    "total",
)


STALE = (
    "the compiled kernel (records/_kernel) is not of this version of the package: install it again"
    " (pip install --force-reinstall, or make .venv/.ready in a clone), or set"
    " AIOKAFKAWIRE_PURE_PYTHON=1"
)


def load_source() -> ModuleType:
    """Import `_kernel.py` under another name, as a compiled module of its name takes precedence."""
    name = f"{__package__}._kernel_source"
    if name not in sys.modules:
        spec = spec_from_file_location(name, Path(__file__).with_name("_kernel.py"))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


# Without a compiled kernel, as in a zip file, the import system finds the source by itself.
if TYPE_CHECKING or not is_pure_requested() or compiled_kernel() is None:
    try:
        from ._kernel import (
            COMPILED,
            RECORD_MIN_BYTES,
            SOURCE_HASH,
            Buffer,
            Header,
            Headers,
            RecordBuffer,
            RecordHandle,
            decode_headers,
            decode_records,
            decode_varint,
            encode_varint,
            fill_binary,
            longest,
            murmur2,
            slices,
            total,
        )

        if TYPE_CHECKING:
            from ._typed_records import Record, ShareRecord, make_records
        else:
            from ._kernel import Record, ShareRecord, make_records
    except ImportError as error:
        raise ImportError(STALE) from error

    if not COMPILED and not is_pure_requested():
        logging.getLogger("aiokafkawire").warning("slower than it could be: %s", not_built_reason())
else:
    _own = {"load_source", "restore"}
    globals().update({name: getattr(load_source(), name) for name in __all__ if name not in _own})


def restore(kind: type[Record] | None, fields: dict[str, Any]) -> Record:
    """Restore a pickled `Record`, which may have been pickled with the other kernel."""
    kind = Record if kind is None else kind
    # A compiled class needs its own `__new__`; that of an application may take arguments.
    base = ShareRecord if issubclass(kind, ShareRecord) else Record
    record: Record = base.__new__(kind)
    for name, value in fields.items():
        setattr(record, name, value)
    return record
