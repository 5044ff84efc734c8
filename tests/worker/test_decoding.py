"""Decoders of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aiokafkawire.worker.decoding import make_decoder


@dataclass
class Order:
    number: int


class Model:
    """Has the interface of a pydantic model."""

    @classmethod
    def model_validate_json(cls, data: bytes) -> tuple[type[Model], bytes]:
        return cls, data


@pytest.mark.parametrize(
    ("wanted", "data", "value"),
    [
        (str, "é".encode(), "é"),
        (dict, b'{"a": 1}', {"a": 1}),
        (list, b"[1]", [1]),
        (Order, b'{"number": 7}', Order(7)),
        (Model, b"{}", (Model, b"{}")),
        (len, b"abc", 3),
    ],
)
def test_a_value_is_decoded(wanted: Any, data: bytes, value: object):
    decode = make_decoder(wanted)
    assert decode is not None
    assert decode(data) == value


@pytest.mark.parametrize("wanted", [None, bytes])
def test_bytes_need_no_decoder(wanted: Any):
    assert make_decoder(wanted) is None


@pytest.mark.parametrize(
    ("wanted", "data"),
    [(dict, b"[1]"), (list, b"{}"), (Order, b"7"), (Order, b'{"count": 7}'), (str, b"\xff")],
)
def test_other_data_raises(wanted: Any, data: bytes):
    decode = make_decoder(wanted)
    assert decode is not None
    with pytest.raises((TypeError, ValueError)):
        decode(data)


def test_a_type_without_a_decoder_is_refused():
    with pytest.raises(TypeError, match="cannot decode bytes as float"):
        make_decoder(float)
