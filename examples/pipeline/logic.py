"""What becomes of the raw events: the same expressions for both forms of the pipeline.

They are Spark's own and no Python functions, so that nothing of this has to be sent to the workers,
and a session over Spark Connect takes them as well.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

__all__ = ("as_records", "counts", "dead_letters", "events", "sessions")

EVENT = "user string, page string, words int, time timestamp"
"""What a raw event must be, as JSON. Without one of the fields it is none."""

DELAY = "10 minutes"
"""How far behind the youngest event another one may be for sure."""

WINDOW = "10 minutes"
GAP = "10 minutes"
"""After so long without an event of a user, the next one begins a session."""


def _parsed(raw: DataFrame) -> DataFrame:
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return raw.withColumn("event", event)


def _is_event() -> f.Column:
    whole = f.lit(True)
    for name in ("user", "page", "words", "time"):
        whole = whole & f.col(f"event.{name}").isNotNull()
    return whole


def events(raw: DataFrame) -> DataFrame:
    """What parses, with a watermark: later than that, an event may be left out."""
    return _parsed(raw).where(_is_event()).select("event.*").withWatermark("time", DELAY)


def dead_letters(raw: DataFrame) -> DataFrame:
    """What does not parse, as records that bear where it was found."""

    def header(name: str) -> f.Column:
        value = f.col(name).cast("string").cast("binary")
        return f.struct(f.lit(f"source.{name}").alias("key"), value.alias("value"))

    found = f.array(header("topic"), header("partition"), header("offset"))
    return _parsed(raw).where(~_is_event()).select("key", "value", found.alias("headers"))


def counts(timely: DataFrame) -> DataFrame:
    """How much of each page was read in each window, once the watermark has passed its end."""
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
    """How long each user read without a pause of `GAP`, which is part of the session."""
    session = f.session_window("time", GAP).alias("session")
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
    """Rows as JSON, keyed by one of their columns."""
    return rows.select(f.col(key).alias("key"), f.to_json(f.struct("*")).alias("value"))
