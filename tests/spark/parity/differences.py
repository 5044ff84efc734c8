"""Intended differences between the two connectors, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of the table of differences in docs/spark.md."""

    what: str
    ours: str
    theirs: str
    why: str


DIFFERENCES = {
    "unknown option": Difference(
        "unknown options",
        "an error",
        "ignored",
        "a misspelt option would give a wrong result unnoticed",
    ),
    "unknown partition": Difference(
        "an assigned partition that does not exist",
        "an error",
        "no rows",
        "requested rows must not be missing unnoticed",
    ),
    "ending time of a stream": Difference(
        "`endingTimestamp` of a stream",
        "an error, like other ending options",
        "ignored",
        "the stream would not end there",
    ),
    "starting after ending": Difference(
        "starting after ending, with `minPartitions`",
        "an error, as without `minPartitions`",
        "no rows",
        "contradictory offsets are a mistake for any number of tasks",
    ),
    "pattern": Difference(
        "patterns", "Python's `re`", "`java.util.regex`", "topics are matched in Python"
    ),
    "records per task": Difference(
        "`maxRecordsPerPartition` of a batch",
        "always applies, as for a stream",
        "applies only if `minPartitions` asks for more tasks than partitions",
        "this is the documented meaning of the option",
    ),
    "save mode": Difference(
        "save mode of a batch",
        "`append` is required",
        "`errorifexists` works too",
        "Spark supports no other mode for Python sources",
    ),
    "output mode": Difference(
        "output mode `update` of a stream",
        "Spark does not offer it to Python sources",
        "yes",
        "Spark refuses it before it calls the sink",
    ),
}
