"""Intended differences between the two connectors, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of the table in docs/spark.md: what differs, how, and why it stays so."""

    what: str
    ours: str
    theirs: str
    why: str


DIFFERENCES = {
    "unknown option": Difference(
        "unknown options",
        "an error",
        "ignored",
        "a misspelt option is a wrong result that nobody sees",
    ),
    "unknown partition": Difference(
        "an assigned partition that is not there",
        "an error",
        "no rows",
        "rows that were asked for are not left out silently",
    ),
    "ending time of a stream": Difference(
        "`endingTimestamp` of a stream",
        "an error, as the other endings",
        "ignored",
        "the stream would not end there",
    ),
    "starting after ending": Difference(
        "starting after ending, with `minPartitions`",
        "an error, as without",
        "no rows",
        "offsets that contradict are a mistake, however many tasks there are",
    ),
    "pattern": Difference(
        "patterns", "Python's `re`", "`java.util.regex`", "topics are matched in Python"
    ),
    "records per task": Difference(
        "`maxRecordsPerPartition` of a batch",
        "holds by itself, as of a stream",
        "holds where `minPartitions` asks for more tasks than partitions",
        "it is what the option says",
    ),
    "save mode": Difference(
        "save mode of a batch",
        "`append` must be said",
        "`errorifexists` works too",
        "Spark knows no other for sources in Python",
    ),
    "output mode": Difference(
        "output mode `update` of a stream",
        "not offered by Spark to Python",
        "yes",
        "Spark refuses it before the sink is asked",
    ),
}
