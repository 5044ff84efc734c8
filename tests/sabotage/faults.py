"""The faults that are planted: what a hurried programmer might have written."""

from __future__ import annotations

from tests.sabotage.outsiders import OUTSIDERS
from tests.sabotage.planting import Sabotage

__all__ = ("SABOTAGES",)

PRODUCER = (
    Sabotage(
        "sequence_kept_after_a_sure_failure",
        "corners",
        "aiokafkawire.producer.sequences",
        "return Flowing(state.identity, stamp.base_sequence)",
        "return state",
    ),
    Sabotage(
        "epoch_not_raised_after_a_gap",
        "producing",
        "aiokafkawire.producer.sequences",
        "ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1)",
        "ProducerIdAndEpoch(identity.producer_id, identity.epoch)",
    ),
    Sabotage(
        "halves_of_a_split_batch_numbered_alike",
        "corners",
        "aiokafkawire.producer.partition_queue",
        "base = advance(batch.stamp.base_sequence, start)",
        "base = batch.stamp.base_sequence",
    ),
    Sabotage(
        "last_half_of_a_split_batch_lost",
        "corners",
        "aiokafkawire.producer.partition_queue",
        "pieces = batch.records.split(BATCH_OVERHEAD_BYTES + body_bytes // 2)",
        "pieces = batch.records.split(BATCH_OVERHEAD_BYTES + body_bytes // 2)[:-1]",
    ),
    Sabotage(
        "a_batch_that_went_out_counts_as_unsent",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "return batch.maybe_written or batch.state is BatchState.IN_FLIGHT",
        "return False",
    ),
    Sabotage(
        "doubt_forgotten_when_sent_again",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "            batch.uncertain = True\n        if answer.closed_after_bytes",
        "            batch.uncertain = False\n        if answer.closed_after_bytes",
    ),
    Sabotage(
        "the_buffer_has_no_end",
        "slow",
        "aiokafkawire.producer.accumulator",
        "return self.used_bytes + size_bytes <= self._buffer_bytes",
        "return True",
    ),
    Sabotage(
        "more_under_way_than_allowed",
        "producing",
        "aiokafkawire.producer.partition_queue",
        "elif len(self.in_flight) >= self.policy.max_in_flight:",
        "elif len(self.in_flight) > self.policy.max_in_flight + 5:",
    ),
    Sabotage(
        "one_replica_taken_for_all",
        "corners",
        "aiokafkawire.producer.node_sender",
        '            "acks": self._acks,\n',
        '            "acks": self._acks and 1,\n',
    ),
    Sabotage(
        "an_answer_read_in_one_piece_tells_no_error",
        "producing",
        "aiokafkawire.producer.usual",
        "if error or told != partition or begins != before or ends != after:",
        "if told != partition or begins != before or ends != after:",
    ),
)

TRANSACTIONS = (
    Sabotage(
        "records_are_sent_before_their_partition_is_added",
        "transacting",
        "aiokafkawire.producer.partition_queue",
        "if not identities.local and not identities.admits(self.topic_partition):",
        "if False:",
    ),
    Sabotage(
        "an_end_written_in_one_piece_is_a_commit",
        "transacting",
        "aiokafkawire.producer.transactions.usual",
        "_REQUEST.pack(producer_id, epoch, end.committed)",
        "_REQUEST.pack(producer_id, epoch, True)",
    ),
    Sabotage(
        "a_transaction_that_brokers_took_up_is_not_ended",
        "transacting",
        "aiokafkawire.producer.transactions.steps",
        "    if state.transaction.protocol is Protocol.IMPLICIT:\n"
        "        state.transaction.known = True\n"
        "    return state\n",
        "    return state\n",
    ),
)

CONSUMER = (
    Sabotage(
        "an_iterator_gives_what_it_holds_after_a_seek",
        "corners",
        "aiokafkawire.consumer.buffer",
        "        self.ready = _NOTHING\n",
        "        pass\n",
    ),
    Sabotage(
        "records_of_an_iterator_do_not_count_as_calls",
        "corners",
        "aiokafkawire.consumer.consumer",
        "            if self._touched is not None:\n                self._touched()\n",
        "",
    ),
    Sabotage(
        "nothing_committed_when_partitions_are_revoked",
        "churn",
        "aiokafkawire.consumer.rebalance",
        "        await self.commit_processed(self._still_mine(going))\n",
        "",
    ),
    Sabotage(
        "commits_one_too_many",
        "churn",
        "aiokafkawire.consumer.partition",
        "return OffsetAndMetadata(buffer.processed, leader_epoch=buffer.leader_epoch)",
        "return OffsetAndMetadata(buffer.processed + 1, leader_epoch=buffer.leader_epoch)",
    ),
    Sabotage(
        "auto_commit_passes_the_running_record",
        "slow",
        "aiokafkawire.consumer.partition",
        "return OffsetAndMetadata(buffer.processed, leader_epoch=buffer.leader_epoch)",
        "return OffsetAndMetadata(buffer.position, leader_epoch=buffer.leader_epoch)",
    ),
    Sabotage(
        "latest_after_an_unknown_error",
        "liar",
        "aiokafkawire.consumer.partition",
        "again = AwaitingCommitted(event.again_at)",
        "again = Resetting(LogPoint.LATEST)",
    ),
    Sabotage(
        "paused_partitions_give_records",
        "corners",
        "aiokafkawire.consumer.partition",
        "if self.paused or self.revoked or not isinstance(self.state, Positioned):",
        "if self.revoked or not isinstance(self.state, Positioned):",
    ),
    Sabotage(
        "paused_for_ever",
        "corners",
        "aiokafkawire.consumer.consumer",
        "            self._owned(core, tp).paused = paused",
        "            self._owned(core, tp).paused |= paused",
    ),
    Sabotage(
        "records_before_the_position_given",
        "corners",
        "aiokafkawire.records.fetch",
        "start = bisect_left(columns.offsets, self.position)",
        "start = 0",
    ),
    Sabotage(
        "aborted_records_given",
        "transacting",
        "aiokafkawire.records.fetch",
        "return batch.is_transactional\n",
        "return False\n",
    ),
    Sabotage(
        "a_producer_that_aborted_once_is_never_read_again",
        "transacting",
        "aiokafkawire.records.fetch",
        "self._aborted_producers.discard(batch.producer_id)",
        "pass",
    ),
    Sabotage(
        "control_records_given",
        "transacting",
        "aiokafkawire.records.fetch",
        "if (self._committed_only and self._is_aborted(batch)) or batch.is_control:",
        "if self._committed_only and self._is_aborted(batch):",
    ),
    Sabotage(
        "checksums_not_looked_at",
        "liar",
        "aiokafkawire.records.fetch",
        "            batch.check_crc()",
        "            pass",
    ),
)

GROUP = (
    Sabotage(
        "outdated_generation_taken_for_a_kept_commit",
        "churn",
        "aiokafkawire.group.commits",
        "        if code == ErrorCode.NONE:",
        "        if code in {ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION}:",
    ),
    Sabotage(
        "held_commits_sent_whoever_owns_the_partition",
        "corners",
        "aiokafkawire.group.commits",
        "still = set(event.owned) if event.generation <= state.generation + 1 else set()",
        "still = set(m.wanted)",
    ),
    Sabotage(
        "a_commit_refused_for_a_moment_is_sent_again_at_once",
        "coordinator",
        "aiokafkawire.group.commits",
        "            delayed = True\n",
        "            delayed = False\n",
    ),
    Sabotage(
        "one_new_partition_dropped_in_a_cooperative_rebalance",
        "churn",
        "aiokafkawire.group.entering",
        "coming = tuple(tp for tp in given if tp not in had)",
        "coming = tuple(tp for tp in given if tp not in had)[1:]",
    ),
    Sabotage(
        "a_generation_missed_is_no_matter",
        "churn",
        "aiokafkawire.group.entering",
        "if event.generation > state.generation.number + 1:",
        "if False:",
    ),
    Sabotage(
        "heartbeats_stop_after_the_first",
        "slow",
        "aiokafkawire.group.owning",
        "after = steps.with_pulse(state, m.new_pulse(state.pulse.node, now))\n    text",
        "after = steps.with_pulse(state, replace(m.new_pulse(state.pulse.node, now),"
        " next_at=now + 86_400))\n    text",
    ),
)

CONNECTION = (
    Sabotage(
        "requests_that_had_to_wait_end_the_connection",
        "corners",
        "aiokafkawire.connection.in_flight",
        "call.limit = max(call.deadline, now + self._request_timeout_s)",
        "call.limit = now + self._request_timeout_s",
    ),
    Sabotage(
        "a_request_goes_into_the_middle_of_another",
        "producing",
        "aiokafkawire.connection.channel",
        "if expect_response and not self._outgoing.busy:",
        "if expect_response:",
    ),
    Sabotage(
        "silence_that_a_broker_asks_for_is_broken",
        "corners",
        "aiokafkawire.connection.in_flight",
        "len(waiting) >= self._max_in_flight or now < self.throttled_until:",
        "len(waiting) >= self._max_in_flight:",
    ),
    Sabotage(
        "correlation_ids_used_again",
        "churn",
        "aiokafkawire.connection.in_flight",
        "self.next_correlation_id = 0 if number == MAX_CORRELATION_ID else number + 1",
        "self.next_correlation_id = (number + 1) % 4",
    ),
    Sabotage(
        "silent_brokers_waited_for_for_ever",
        "producing",
        "aiokafkawire.connection.in_flight",
        "if under_way and under_way[0].limit <= now:",
        "if False:",
    ),
    Sabotage(
        "a_cancelled_request_gives_its_slot_away",
        "producing",
        "aiokafkawire.connection.in_flight",
        "        elif call.state is CallState.SENT:\n            call.on(CallEvent.CANCELLED)\n",
        "        elif call.state is CallState.SENT:\n            call.on(CallEvent.CANCELLED)\n"
        "            self._waiting.remove(call)\n",
    ),
)

SABOTAGES = {
    each.name: each
    for each in (*PRODUCER, *TRANSACTIONS, *CONSUMER, *GROUP, *CONNECTION, *OUTSIDERS)
}
