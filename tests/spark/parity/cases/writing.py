"""Batch queries that write."""

from __future__ import annotations

from tests.spark.parity.case import (
    NO_ERROR,
    OUT,
    k,
    writing,
)

HEADERS = "headers array<struct<key:string,value:binary>>"

WRITES = (
    writing("values", "value string", ("'a'",), ("'ü'",), ("''",)),
    writing("binary values", "value binary", ("X'00ff'",), ("X''",)),
    writing("null", "key string, value string", ("null", "null"), ("'k'", "null")),
    writing(
        "keys", "key string, value string", *((f"'k{n}'", "'v'") for n in range(20)), partitions=5
    ),
    writing(
        "binary keys",
        "key binary, value binary",
        ("X'01'", "X'02'"),
        ("X''", "X'03'"),
        partitions=5,
    ),
    writing(
        "a column for the topic", "topic string, value string", (f"'{OUT}'", "'a'"), topic=None
    ),
    writing("the option goes before the column", "topic string, value string", ("'other'", "'a'")),
    writing(
        "the option goes before a column of null", "topic string, value string", ("null", "'a'")
    ),
    writing(
        "partitions",
        "key string, value string, partition int",
        ("'a'", "'1'", "2"),
        ("'a'", "'2'", "0"),
        ("'k1'", "'3'", "null"),
        partitions=3,
    ),
    writing(
        "headers",
        f"value string, {HEADERS}",
        ("'1'", "array(named_struct('key', 'a', 'value', X'01'))"),
        (
            "'2'",
            "array(named_struct('key', 'a', 'value', X'01'), struct('a' as key, X'' as value))",
        ),
        ("'3'", "array(named_struct('key', 'é', 'value', cast(null as binary)))"),
        ("'4'", "null"),
        ("'5'", "array()"),
    ),
    writing("more columns", "value string, extra int", ("'a'", "1")),
    writing("no row", "value string"),
    writing(
        "names in other letters",
        "VALUE string, Key string",
        ("'a'", "'b'"),
        fails=("column named value", "Required attribute 'value'"),
    ),
    *(
        writing(
            f"compressed with {codec}",
            "value string",
            ("'a'",),
            ("'a'",),
            **k(compression_type=codec),
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    *(
        writing(f"acks {acks}", "value string", ("'a'",), **{"kafka.acks": acks})
        for acks in ("0", "1", "all", "-1")
    ),
    writing(
        "the default mode",
        "value string",
        ("'a'",),
        mode=None,
        fails=("append|not supported|mode", NO_ERROR),
        differs="save mode",
    ),
    *(
        writing(
            f"the mode {mode}",
            "value string",
            ("'a'",),
            mode=mode,
            fails=("overwrit|mode|append", "Save mode|not allowed|not supported"),
        )
        for mode in ("overwrite", "ignore")
    ),
    writing(
        "no topic",
        "value string",
        ("'a'",),
        topic=None,
        fails=("option topic", "topic option required"),
    ),
    writing("an empty topic", "value string", ("'a'",), topic="", fails=("topic is empty", ".")),
    writing(
        "no value",
        "key string",
        ("'a'",),
        fails=("column named value", "Required attribute 'value'"),
    ),
    writing("a number as value", "value int", ("1",), fails=("value", "value")),
    writing("a number as key", "key bigint, value string", ("1", "'a'"), fails=("key", "key")),
    writing(
        "a number as topic",
        "topic int, value string",
        ("1", "'a'"),
        fails=("topic", "topic"),
        topic=None,
    ),
    writing(
        "a long as partition",
        "partition bigint, value string",
        ("0", "'a'"),
        fails=("partition", "partition"),
    ),
    writing(
        "text as headers",
        "headers string, value string",
        ("'x'", "'a'"),
        fails=("headers", "headers"),
    ),
    writing(
        "headers of text",
        "headers array<struct<key:string,value:string>>, value string",
        ("array(named_struct('key', 'a', 'value', 'b'))", "'a'"),
        fails=("headers", "headers"),
    ),
    writing(
        "a topic of null",
        "topic string, value string",
        ("null", "'a'"),
        topic=None,
        fails=("topic is null", "null topic"),
    ),
    writing(
        "an unknown topic",
        "value string",
        ("'a'",),
        topic="nowhere",
        fails=("nowhere", "nowhere"),
        **k(max_block_ms="2000"),
    ),
    writing(
        "an unknown partition",
        "value string, partition int",
        ("'a'", "7"),
        fails=("partition", "not present in metadata"),
        **k(max_block_ms="2000"),
    ),
    writing(
        "a negative partition",
        "value string, partition int",
        ("'a'", "-1"),
        fails=("partition", "partition"),
        **k(max_block_ms="2000"),
    ),
    writing(
        "a record that is too large",
        "value string",
        ("repeat('x', 2000)",),
        fails=("large|max_request_size|bytes", "RecordTooLarge|larger than"),
        **k(max_request_size="1000"),
    ),
    writing(
        "no address",
        "value string",
        ("'a'",),
        fails=("bootstrap.servers", "bootstrap.servers"),
        **{"kafka.bootstrap.servers": None},
    ),
    writing(
        "an unknown codec",
        "value string",
        ("'a'",),
        fails=("compression", "compression"),
        **k(compression_type="rar"),
    ),
    writing("acks of text", "value string", ("'a'",), fails=("acks", "acks"), **k(acks="some")),
    *(
        writing(
            f"with {name}",
            "value string",
            ("'a'",),
            fails=(f"kafka.{name} is not supported", "not supported"),
            **{f"kafka.{name}": "a.B"},
        )
        for name in ("key.serializer", "value.serializer")
    ),
)
