"""Serializers and deserializers of types and functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from aiokafkawire.serialization import make_deserializer, make_serializer


@dataclass
class Order:
    number: int


class Struct(msgspec.Struct):
    number: int


class Model(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (str, "é", "é".encode()),
        (dict, {"a": "é"}, '{"a":"é"}'.encode()),
        (list, [1, None], b"[1,null]"),
        (Order, Order(7), b'{"number":7}'),
        (Struct, Struct(7), b'{"number":7}'),
        (Model, Model(number=7), b'{"number":7}'),
    ],
)
def test_a_value_comes_back(kind: Any, value: object, data: bytes):
    serialize, deserialize = make_serializer(kind), make_deserializer(kind)
    assert serialize is not None
    assert deserialize is not None
    assert serialize(value) == data
    assert deserialize(data) == value


def test_functions_are_used_as_they_are():
    assert make_serializer(json.dumps) is json.dumps
    assert make_deserializer(len) is len


@pytest.mark.parametrize("make", [make_serializer, make_deserializer])
@pytest.mark.parametrize("kind", [None, bytes])
def test_bytes_need_none(make: Any, kind: Any):
    assert make(kind) is None


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (dict, b"[1]"),
        (list, b"{}"),
        (dict, b"{"),
        (Order, b"7"),
        (Order, b'{"count": 7}'),
        (Struct, b'{"number": "7"}'),
        (Model, b"{}"),
        (str, b"\xff"),
    ],
)
def test_other_data_raises(kind: Any, data: bytes):
    deserialize = make_deserializer(kind)
    assert deserialize is not None
    with pytest.raises((TypeError, ValueError)):
        deserialize(data)


@pytest.mark.parametrize("make", [make_serializer, make_deserializer])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (float, "float is not supported"),
        (list[int], r"pass a type or a function, not list"),
        ("json", "pass a type or a function, not 'json'"),
    ],
)
def test_other_types_are_refused(make: Any, kind: Any, message: str):
    with pytest.raises(TypeError, match=message):
        make(kind)
