"""The mutations: for each marker in the package, what it changes and which scenario catches it."""

from __future__ import annotations

from verify.mutation.operations import (
    Operation,
    delete,
    drop,
    insert_after,
    move_into_next_if,
    replace,
    replace_statement,
    swap_with_next,
)
from verify.mutation.planting import Mutation

__all__ = ("BLIND", "MUTATIONS")

_INFORMED: dict[str, tuple[str, Operation]] = {
    # producer
    "sequence-kept-after-refusal": ("corners", replace("{function.args.args[0].arg}")),
    "epoch-not-bumped-after-gap": (
        "producing",
        replace("{expression.left}", at="orelse.args[1]"),
    ),
    "split-halves-share-sequence": ("corners", replace("{expression.args[0]}")),
    "last-half-of-split-lost": ("corners", replace("{expression}[:-1]")),
    "sent-batch-counts-as-unsent": ("producing", replace("False")),
    "uncertainty-cleared-before-retry": ("producing", replace("False")),
    "buffer-unbounded": ("slow", replace("True")),
    "max-in-flight-exceeded": ("producing", replace("{expression} + 6", at="comparators[0]")),
    "acks-one-instead-of-all": ("corners", replace("{expression} and 1")),
    "error-of-short-produce-response-ignored": ("producing", drop(0)),
    # transactions
    "records-sent-before-partition-added": ("transacting", replace("False")),
    "short-end-request-always-commits": ("transacting", replace("True", at="args[2]")),
    "implicit-transaction-not-ended": ("transacting", delete),
    # consumer
    "iterator-keeps-records-after-seek": ("corners", delete),
    "iterated-records-do-not-reset-poll-timer": ("corners", delete),
    "no-commit-on-revocation": ("churn", delete),
    "commit-off-by-one": ("churn", replace("{expression} + 1", at="args[0]")),
    "commit-passes-running-record": ("slow", replace("True")),
    "reset-to-latest-after-lookup-error": ("byzantine", replace("Resetting(-1)")),
    "paused-partition-read": ("corners", drop(0)),
    "resume-ignored": ("corners", replace("{statement.targets[0]} | {expression}")),
    "position-kept-in-recreated-topic": ("topics", delete),
    "records-before-position-returned": ("corners", replace("0")),
    "aborted-records-returned": ("transacting", replace("False")),
    "abort-marker-ignored": ("transacting", delete),
    "control-records-returned": ("transacting", drop(-1)),
    "crc-not-checked": ("byzantine", delete),
    # group
    "illegal-generation-counts-as-committed": ("churn", replace("{expression.left} in (0, 22)")),
    "held-commits-sent-without-ownership": ("corners", replace("[]")),
    "refused-commit-sent-without-backoff": ("coordinator", replace("False")),
    "new-partition-dropped-in-cooperative-rebalance": ("churn", replace("{expression}[1:]")),
    "missed-generation-ignored": ("churn", replace("False")),
    "heartbeats-stop-after-first": (
        "slow",
        replace("{expression} + 86_400", at="args[1].args[1]"),
    ),
    # connection
    "queued-request-times-out-before-deadline": ("corners", replace("{expression.args[1]}")),
    "request-written-into-another": ("producing", drop(-1)),
    "throttle-ignored": ("corners", drop(-1)),
    "correlation-ids-reused": ("churn", replace("{expression.left} % 4")),
    "silent-broker-never-times-out": ("producing", replace("False")),
    "cancelled-request-frees-its-slot": (
        "producing",
        insert_after("self._awaiting_response.remove({expression.func.value})"),
    ),
    # worker
    "failed-record-done-without-copy": ("worker", delete),
    "failed-record-of-batch-counts-as-done": ("worker", replace("{expression} + 1", at="elts[0]")),
    "undecodable-record-counts-as-done": ("worker", replace("{function.args.args[2].arg}")),
    "unfinished-record-committed": ("worker", replace("{expression.orelse}")),
    "unfinished-record-named-as-finished": ("worker", replace("True")),
    "records-start-beside-former-assignment": ("worker", replace("None", at="args[2]")),
    "order-by-key-ends-with-fetch": ("worker", replace("False")),
    "wait-of-handler-not-noticed": ("worker", delete),
    "failed-batch-not-split": ("worker", replace("False")),
    "retry-topic-not-passed": ("worker", replace("{expression.left}", at="args[2]")),
    "handler-without-time-limit": ("worker", replace("{expression.body}")),
    "timed-out-record-counts-as-done": ("worker", delete),
    "unwritten-dead-letter-counts-as-done": (
        "worker",
        replace_statement(
            "return self._finish_copied({function.args.args[1].arg}, {function.args.args[2].arg})"
        ),
    ),
    "too-large-dead-letter-not-written": ("worker", delete),
    "metadata-of-other-offset-trusted": ("worker", drop(0)),
    "damaged-metadata-trusted": ("worker", replace("False")),
    "compacted-record-counts-as-unfinished": (
        "worker",
        replace(
            "range({function.args.args[1].arg}[0].offset,"
            " {function.args.args[1].arg}[-1].offset + 1)",
            at="args[0]",
        ),
    ),
    "output-written-without-offsets": ("exactly_once", delete),
    "offsets-of-lost-partitions-committed": ("exactly_once", replace("False")),
    "output-written-before-its-offset": ("exactly_once", replace("True")),
    "rejected-record-accepted": ("share_worker", replace("False")),
    "processed-record-not-accepted": ("share_worker", delete),
    "deliveries-do-not-count-as-attempts": ("share_worker", delete),
    "record-without-lock-processed": ("share_worker", replace("False")),
    "locks-of-running-records-not-renewed": ("share_worker", replace("0")),
}
"""Written by people who knew the checks."""

_BLIND: dict[str, tuple[str, Operation]] = {
    # producer
    "refused-batch-goes-to-front": ("producing", replace("0", at="args[0]")),
    "uncertain-batch-gets-new-sequence": ("producing", replace("True")),
    "delivery-timeout-restarts-with-each-attempt": (
        "producing",
        insert_after(
            "{statement.targets[0].value}.expires_at"
            " = {expression} + self.config.delivery_timeout_s"
        ),
    ),
    "timed-out-append-counts-as-refused": ("producing", delete),
    "moved-partition-stays-with-old-leader": ("corners", swap_with_next),
    "failed-batches-keep-buffer-space": ("producing", move_into_next_if),
    "one-waiter-woken-for-freed-space": ("corners", delete),
    "first-batches-in-flight-together": ("producing", drop(-1)),
    # transactions
    "commit-ignores-failed-record": (
        "corners",
        replace(
            "{{**{expression}, **{expression.func}("
            "{expression.args[0]}[1:],"
            " {{a: (lambda _, state, *__: (state, ())) for a in {expression.args[1]}}})}}"
        ),
    ),
    "cancelled-body-committed": (
        "transacting",
        replace("isinstance({expression.left}, Exception)"),
    ),
    "abort-overtakes-expired-record": ("corners", replace("True")),
    "waiting-record-joins-next-transaction": ("corners", replace("{expression.left} is None")),
    # consumer
    "earlier-chunks-count-as-processed": ("corners", replace("{expression.args[1]}")),
    "commit-passes-slower-task": ("slow", replace("max", at="func")),
    "seek-back-not-committed": ("corners", drop(-1, at="values[1]")),
    "stale-response-accepted-after-seek": (
        "corners",
        replace("type({expression.left}) is not type({expression.comparators[0]})"),
    ),
    "fetched-records-dropped-when-out-of-range": ("corners", delete),
    "missing-offset-on-follower-resets-position": (
        "corners",
        replace("{expression.values[0]} and {expression.values[1].left} == 6"),
    ),
    "fetch-session-never-forgets-partitions": ("corners", replace("()")),
    "buffered-records-do-not-reset-poll-timer": ("corners", delete),
    # group
    "newer-commit-forgotten-with-older": ("corners", replace("{expression.left} is not None")),
    "commit-acknowledged-by-older-one": ("corners", replace("True")),
    "heartbeats-go-to-old-coordinator": ("corners", drop(-1)),
    "lost-member-offsets-sent-in-new-generation": ("corners", drop(0)),
    "offsets-fetched-without-require-stable": ("corners", drop(-1)),
    "static-member-leaves-group": ("corners", drop(-1)),
    # cluster
    "stale-metadata-moves-leader-back": (
        "corners",
        replace(
            "{expression.values[0]} and {expression.values[1]} and {expression.values[2].left} < 0"
        ),
    ),
    "failed-metadata-not-requested-again": ("corners", delete),
    "moved-coordinator-not-forgotten": ("corners", delete),
    # connection
    "request-times-out-before-deadline": ("corners", replace("{expression.args[1]}")),
    "queued-requests-hang-after-disconnect": ("corners", drop(-1, at="generators[0].iter")),
    "deadline-missed-by-sleeping-timer": ("corners", delete),
    "written-request-counts-as-unsent": (
        "producing",
        replace("False", at="keywords[0].value"),
    ),
    "failures-kept-after-reconnect": ("corners", delete),
    "heartbeats-wait-behind-join": ("corners", delete),
    # records
    "single-aborted-batch-returned": (
        "transacting",
        replace("{expression.left} < {expression.comparators[0]}", at="values[1]"),
    ),
    "slice-of-batch-begins-too-early": (
        "corners",
        replace("max({expression.right.args[0]}, {expression.left})"),
    ),
    "last-timestamp-taken-for-latest": ("producing", replace("True")),
}
"""Written from the source alone, without knowledge of the checks."""

_OF_OTHERS: dict[str, tuple[str, Operation]] = {
    # Bugs of other clients in the consumer protocol (KIP-848)
    "late-heartbeat-response-accepted": ("protocol_corners", replace("False")),
    "offset-fetch-repeated-at-once": ("protocol_corners", delete),
    "stale-epoch-counts-as-no-offset": (
        "protocol_corners",
        replace_statement("return {{a: None for a in {function.args.args[2].arg}}}"),
    ),
    "commit-with-stale-epoch-fails": ("protocol_corners", replace("False")),
    "no-callback-on-revocation": ("mixed_group", delete),
    "topic-unknown-at-assignment-never-read": ("protocol_corners", replace("False")),
    "revocation-acknowledged-before-callback": (
        "mixed_group",
        replace("{expression.body.value}.target.partitions if {expression.test} else ()"),
    ),
    "revoked-partitions-committed-later": ("protocol_corners", delete),
    "topic-id-missing-in-offset-fetch": ("protocol_corners", replace("{expression.body}")),
    "unsubscribed-topic-delivered": ("protocol_corners", replace("False")),
    "close-without-deadline": (
        "protocol_corners",
        replace("{expression} + 60", at="value.args[1]"),
    ),
    "member-closed-while-joining-stays": ("protocol_corners", replace("True")),
    "assignment-applied-while-leaving": ("protocol_corners", replace("False")),
    "partitions-removed-before-revocation-callback": (
        "protocol_corners",
        insert_after("{expression.func.value}._release({expression.args[0]})"),
    ),
    "failed-lookup-not-repeated": ("protocol_corners", delete),
    "fenced-member-sends-heartbeats": ("protocol_corners", replace("0.0", at="args[1]")),
    "leave-never-completes": (
        "protocol_corners",
        replace("({function.args.args[1].arg}, ())"),
    ),
    "end-of-callback-forgotten": ("protocol_corners", delete),
    "epoch-ignored-while-leaving": (
        "protocol_corners",
        replace(
            "{statement.value.args[0]}.epoch"
            " if hasattr({statement.value.args[0]}, 'next_action') else {expression}",
            at="keywords[1].value",
        ),
    ),
    "bootstrap-without-backoff": ("protocol_corners", replace("{expression.left}")),
}
"""Written for bugs that other clients had, one for each."""

_OF_SHARE_GROUPS: dict[str, tuple[str, Operation]] = {
    "unconfirmed-acknowledgements-have-no-result": ("share", drop(0, at="generators[0].iter")),
    "unconfirmed-acknowledgements-succeed": ("share", replace("None", at="elt.args[2]")),
    "gaps-not-acknowledged": ("share", replace("False")),
    "records-outside-acquired-ranges-delivered": (
        "share",
        replace("{expression.func.value}"),
    ),
    "cancelled-task-accepts-its-records": ("share", replace("1", at="args[2]")),
    "records-accepted-after-exception": ("share", replace("True")),
    "epoch-kept-after-acknowledge": (
        "share",
        replace("{expression.args[0]}", at="elts[0].args[0]"),
    ),
    "renewal-sent-in-fetch": ("share", replace("{expression.orelse}")),
    "acknowledged-ranges-merge-over-gaps": ("share", drop(1)),
    "acknowledged-records-stay-held": ("share", delete),
}
"""Pitfalls of share consumers (KIP-932), among them bugs of other clients."""

BLIND = frozenset(_BLIND)

MUTATIONS = {
    name: Mutation(name, scenario, operation)
    for name, (scenario, operation) in (_INFORMED | _BLIND | _OF_OTHERS | _OF_SHARE_GROUPS).items()
}
