"""The transformations of the raw events, shared by both forms of the pipeline.

They are Spark expressions instead of Python functions, so nothing is sent to Python workers, and
they also work over Spark Connect.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

__all__ = ("as_records", "counts", "dead_letters", "events", "sessions")

EVENT = "user string, page string, words int, time timestamp"
"""Schema of an event in JSON. All fields are required."""

WATERMARK_DELAY = "10 minutes"
"""Delay of the watermark behind the latest event."""

WINDOW = "10 minutes"
SESSION_GAP = "10 minutes"
"""A session ends after this time without an event of its user."""


def _parsed(raw: DataFrame) -> DataFrame:
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return raw.withColumn("event", event)


def _is_event() -> f.Column:
    whole = f.lit(True)
    for name in ("user", "page", "words", "time"):
        whole = whole & f.col(f"event.{name}").isNotNull()
    return whole


def events(raw: DataFrame) -> DataFrame:
    """Return the valid events, with a watermark: later ones may be dropped."""
    return _parsed(raw).where(_is_event()).select("event.*").withWatermark("time", WATERMARK_DELAY)


def dead_letters(raw: DataFrame) -> DataFrame:
    """Return the invalid records, with their source in headers."""

    def header(name: str) -> f.Column:
        value = f.col(name).cast("string").cast("binary")
        return f.struct(f.lit(f"source.{name}").alias("key"), value.alias("value"))

    found = f.array(header("topic"), header("partition"), header("offset"))
    return _parsed(raw).where(~_is_event()).select("key", "value", found.alias("headers"))


def counts(timely: DataFrame) -> DataFrame:
    """Return events and words per page and window, once the watermark has passed its end."""
    window = f.window("time", WINDOW).alias("window")
    found = timely.groupBy(window, "page").agg(
        f.count("*").alias("events"), f.sum("words").alias("words")
    )
    return found.select(
        f.col("window.start").alias("start"),
        f.col("window.end").alias("end"),
        "page",
        "events",
        "words",
    )


def sessions(timely: DataFrame) -> DataFrame:
    """Return the reading sessions per user; each ends with a pause of `SESSION_GAP`."""
    session = f.session_window("time", SESSION_GAP).alias("session")
    found = timely.groupBy(session, "user").agg(
        f.count("*").alias("events"), f.sum("words").alias("words")
    )
    return found.select(
        f.col("session.start").alias("start"),
        f.col("session.end").alias("end"),
        "user",
        "events",
        "words",
    )


def as_records(rows: DataFrame, key: str) -> DataFrame:
    """Return rows as JSON, keyed by one of their columns."""
    return rows.select(f.col(key).alias("key"), f.to_json(f.struct("*")).alias("value"))
