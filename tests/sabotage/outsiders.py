"""Faults thought up from the source alone, whatever the checks look at."""

from __future__ import annotations

from tests.sabotage.planting import Sabotage

__all__ = ("OUTSIDERS",)

PRODUCER = (
    Sabotage(
        "refused_batches_go_to_the_front",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "self.waiting.insert(position, batch)",
        "self.waiting.appendleft(batch)",
    ),
    Sabotage(
        "batches_that_may_be_written_get_new_numbers",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "                if not batch.uncertain:\n                    batch.stamp = None",
        "                batch.stamp = None",
    ),
    Sabotage(
        "delivery_timeout_begins_anew_with_each_attempt",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "        batch.not_before = not_before\n",
        "        batch.not_before = not_before\n"
        "        batch.expires_at = not_before + self.policy.delivery_timeout_s\n",
    ),
    Sabotage(
        "an_append_that_timed_out_counts_as_refused",
        "producing",
        "aiokafkawire.producer.outcomes",
        "ErrorCode.REQUEST_TIMED_OUT: Verdict.RETRY_UNCERTAIN",
        "ErrorCode.REQUEST_TIMED_OUT: Verdict.RETRY",
    ),
    Sabotage(
        "a_partition_that_moved_stays_with_its_old_broker",
        "corners",
        "aiokafkawire.producer.accumulator",
        "                    self._drop_active(queue)\n                    queue.leader = leader\n",
        "                    queue.leader = leader\n                    self._drop_active(queue)\n",
    ),
    Sabotage(
        "room_of_failed_batches_never_comes_back",
        "producing",
        "aiokafkawire.producer.accumulator",
        "        self.used_bytes -= batch.reserved_bytes\n"
        "        outcome = receipt.value\n"
        "        assert outcome is not None\n"
        "        if type(outcome) is Appended:\n",
        "        outcome = receipt.value\n"
        "        assert outcome is not None\n"
        "        if type(outcome) is Appended:\n"
        "            self.used_bytes -= batch.reserved_bytes\n",
    ),
    Sabotage(
        "one_caller_woken_however_much_room_came_back",
        "corners",
        "aiokafkawire.producer.room",
        "            self._waiting.remove(signal)\n            self.freed()",
        "            self._waiting.remove(signal)",
    ),
    Sabotage(
        "several_first_batches_under_way",
        "producing",
        "aiokafkawire.producer.sequences",
        "return current is None or current.producer_id != self._known_producer_id",
        "return current is None",
    ),
)

TRANSACTIONS = (
    Sabotage(
        "a_record_that_fails_during_the_commit_does_not_stop_it",
        "corners",
        "aiokafkawire.producer.transactions.machine",
        "    **_rows(_OPEN, (RecordsFailed,), records_failed),\n",
        "    (InTransaction, RecordsFailed): records_failed,\n"
        "    **_rows((Committing, Detaching), (RecordsFailed,), stay),\n",
    ),
    Sabotage(
        "a_cancelled_body_is_committed",
        "transacting",
        "aiokafkawire.producer.transactions.scope",
        "        if error is not None:\n",
        "        if isinstance(error, Exception):\n",
    ),
    Sabotage(
        "abort_overtakes_an_expired_record",
        "corners",
        "aiokafkawire.producer.transactions.driver",
        "        return not self._accumulator.late\n",
        "        return True\n",
    ),
    Sabotage(
        "a_record_that_waited_goes_into_the_next_transaction",
        "corners",
        "aiokafkawire.producer.transactions.driver",
        "        if self.machine.transaction is not transaction:\n",
        "        if self.machine.transaction is None:\n",
    ),
)

CONSUMER = (
    Sabotage(
        "only_the_last_chunk_given_counts_as_unprocessed",
        "corners",
        "aiokafkawire.consumer.buffer",
        "lease.start = min(lease.start, start)",
        "lease.start = start",
    ),
    Sabotage(
        "commits_pass_the_slower_of_two_tasks",
        "slow",
        "aiokafkawire.consumer.buffer",
        "return min(lease.start for lease in self._leases.values())",
        "return max(lease.start for lease in self._leases.values())",
    ),
    Sabotage(
        "going_back_is_not_committed",
        "corners",
        "aiokafkawire.consumer.partition",
        "if known is not None and buffer.processed <= known <= buffer.position:",
        "if known is not None and buffer.processed <= known:",
    ),
    Sabotage(
        "an_answer_to_an_earlier_seek_is_taken",
        "corners",
        "aiokafkawire.consumer.partition",
        "        if asked is not self.state:\n",
        "        if type(asked) is not type(self.state):\n",
    ),
    Sabotage(
        "fetched_records_dropped_when_the_next_are_out_of_range",
        "corners",
        "aiokafkawire.consumer.partition",
        "    if not state.buffer.empty:\n"
        "        # What was fetched before is still given; the next fetch finds out again.\n"
        "        return state\n",
        "",
    ),
    Sabotage(
        "an_offset_that_a_follower_lacks_resets_the_position",
        "corners",
        "aiokafkawire.consumer.fetcher",
        "if part.from_follower and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:",
        "if part.from_follower and code == ErrorCode.NOT_LEADER_OR_FOLLOWER:",
    ),
    Sabotage(
        "a_fetch_session_never_forgets_a_partition",
        "corners",
        "aiokafkawire.consumer.fetch_session",
        "tuple((tp, was.topic_id) for tp, was in before.items() if tp not in wanted),",
        "(),",
    ),
    Sabotage(
        "records_from_the_buffer_do_not_count_as_calls",
        "corners",
        "aiokafkawire.consumer.core",
        "        if record is not None:\n            self.touched()\n",
        "",
    ),
)

GROUP = (
    Sabotage(
        "a_newer_commit_forgotten_when_the_older_is_kept",
        "corners",
        "aiokafkawire.group.commits",
        "        if self.wanted.get(tp) == sent:\n            del self.wanted[tp]\n",
        "        self.wanted.pop(tp, None)\n",
    ),
    Sabotage(
        "a_commit_told_as_kept_when_an_older_one_is",
        "corners",
        "aiokafkawire.group.commits",
        "if number <= sent.ticket and tp in ticket.open:",
        "if tp in ticket.open:",
    ),
    Sabotage(
        "heartbeats_go_on_to_the_old_coordinator",
        "corners",
        "aiokafkawire.group.owning",
        "replace(state.pulse, request=None, attempt=attempt, next_at=next_at, node=None)",
        "replace(state.pulse, request=None, attempt=attempt, next_at=next_at)",
    ),
    Sabotage(
        "offsets_of_a_lost_place_sent_under_the_new_generation",
        "corners",
        "aiokafkawire.group.coordinator",
        "generation = self._lost or self._machine.generation or self._entered",
        "generation = self._machine.generation or self._entered",
    ),
    Sabotage(
        "offsets_fetched_while_a_transaction_is_about_to_replace_them",
        "corners",
        "aiokafkawire.group.offsets",
        "return OffsetFetchRequest(groups=[group], require_stable=stable)",
        "return OffsetFetchRequest(groups=[group])",
    ),
    Sabotage(
        "a_static_member_gives_its_place_up",
        "corners",
        "aiokafkawire.group.steps",
        "    if not member_id or m.settings.group_instance_id is not None:\n"
        "        return ended(m, after)\n",
        "    if not member_id:\n        return ended(m, after)\n",
    ),
)

CLUSTER = (
    Sabotage(
        "a_broker_that_lags_behind_moves_leaders_back",
        "corners",
        "aiokafkawire.cluster.metadata",
        "if known is not None and comparable and told.leader_epoch < known.leader_epoch:",
        "if known is not None and comparable and told.leader_epoch < 0:",
    ),
    Sabotage(
        "metadata_that_could_not_be_had_is_not_asked_for_again",
        "corners",
        "aiokafkawire.cluster.schedule",
        "        self._unreachable_since = min(self._unreachable_since, now)\n        self.ask()\n",
        "        self._unreachable_since = min(self._unreachable_since, now)\n",
    ),
    Sabotage(
        "a_coordinator_that_moved_is_asked_again_and_again",
        "corners",
        "aiokafkawire.cluster.cluster",
        "        if isinstance(to, Coordinator):\n"
        "            self._coordinators.forget(to)\n"
        "        self._refresher.request_update()\n",
        "        self._refresher.request_update()\n",
    ),
)

CONNECTION = (
    Sabotage(
        "requests_that_may_take_long_end_the_connection",
        "corners",
        "aiokafkawire.connection.in_flight",
        "limit = max(deadline, now + self._request_timeout_s)",
        "limit = now + self._request_timeout_s",
    ),
    Sabotage(
        "queued_requests_hang_when_the_connection_ends",
        "corners",
        "aiokafkawire.connection.in_flight",
        "for call in (*self._waiting, *self.one_way, *self.queue)",
        "for call in (*self._waiting, *self.one_way)",
    ),
    Sabotage(
        "deadlines_missed_while_the_timer_sleeps",
        "corners",
        "aiokafkawire.connection.channel",
        "        if deadline < self._timer.at:\n            self._timer.move(deadline)\n",
        "",
    ),
    Sabotage(
        "a_request_written_whole_counts_as_unsent",
        "producing",
        "aiokafkawire.connection.channel",
        "return ConnectionLost(error.reason, sent=call.sent, broker=self.name, api=api)",
        "return ConnectionLost(\n"
        "                error.reason, sent=bool(self._outgoing.rest), broker=self.name, api=api\n"
        "            )",
    ),
    Sabotage(
        "failures_not_forgotten_after_a_reconnect",
        "corners",
        "aiokafkawire.connection.backoff",
        "    def succeeded(self) -> None:\n        self.failures = 0\n",
        "    def succeeded(self) -> None:\n",
    ),
    Sabotage(
        "heartbeats_wait_behind_a_parked_join",
        "corners",
        "aiokafkawire.connection.lanes",
        "    ApiKey.JOIN_GROUP: Lane.JOIN,\n",
        "",
    ),
)

RECORDS = (
    Sabotage(
        "an_aborted_record_that_stands_alone_is_given",
        "transacting",
        "aiokafkawire.records.fetch",
        "while self._aborted and self._aborted[-1][1] <= batch.last_offset:",
        "while self._aborted and self._aborted[-1][1] < batch.last_offset:",
    ),
    Sabotage(
        "a_slice_of_a_begun_batch_begins_too_early",
        "corners",
        "aiokafkawire.records.sequence",
        "start=segment.start + max(start - before, 0),",
        "start=max(start - before, segment.start),",
    ),
    Sabotage(
        "the_newest_time_of_a_batch_is_that_of_its_last_record",
        "producing",
        "aiokafkawire.records._kernel",
        "        elif timestamp_ms > self.max_timestamp:\n",
        "        else:\n",
    ),
)

OUTSIDERS: tuple[Sabotage, ...] = (
    *PRODUCER,
    *TRANSACTIONS,
    *CONSUMER,
    *GROUP,
    *CLUSTER,
    *CONNECTION,
    *RECORDS,
)
