"""Operations on producers and transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, overload

from aiokafkawire.admin.arguments import as_list, parse_names
from aiokafkawire.admin.hanging_transactions import find_hanging
from aiokafkawire.admin.items import ItemRequest, ItemResult, finish_items
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.routing import RETRIED_CODES
from aiokafkawire.admin.transaction_messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
    marker_request,
    read_markers,
)
from aiokafkawire.admin.types.transactions import (
    AbortTransactionSpec,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from aiokafkawire.errors import KafkaError
from aiokafkawire.types import (
    AnyPartition,
    NodeId,
    ProducerIdAndEpoch,
    TopicPartition,
    parse_topic_partition,
)
from aiokafkawire.wire import ApiKey, ErrorCode
from aiokafkawire.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafkawire.wire.messages.write_txn_markers import WriteTxnMarkersRequest

__all__ = ("TransactionOperations",)

MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Default of the brokers' `transaction.max.timeout.ms`."""

LAST_WITHOUT_TWO_PHASE_COMMIT = 5
"""Version of InitProducerId."""

_FENCE_RETRIED = RETRIED_CODES | {ErrorCode.CONCURRENT_TRANSACTIONS}


class TransactionOperations(Operations):
    """Operations on producers and transactions."""

    @overload
    async def describe_producers(
        self,
        partitions: Iterable[AnyPartition],
        *,
        broker_id: NodeId | None = None,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[TopicPartition, list[ProducerState]]: ...

    @overload
    async def describe_producers(
        self,
        partitions: Iterable[AnyPartition],
        *,
        broker_id: NodeId | None = None,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]: ...

    async def describe_producers(
        self,
        partitions: Iterable[AnyPartition],
        *,
        broker_id: NodeId | None = None,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[TopicPartition, list[ProducerState] | KafkaError]:
        """Return the idempotent and transactional producers of partitions (Kafka 2.8+).

        Args:
            partitions: The partitions.
            broker_id: Node id of a replica to ask; by default the leaders are asked.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The producers by partition.

        Raises:
            PartialFailure: Some partitions do not exist, or may not be described.
            UnsupportedVersion: Brokers before 2.8 have no API for it.
            KafkaError: No broker could be reached.
        """
        wanted = [*map(parse_topic_partition, partitions)]
        results = await describe_producers(self._requester(timeout_ms), wanted, broker_id)
        return finish_items(results, "partitions", return_errors=return_errors)

    @overload
    async def describe_transactions(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, TransactionDescription]: ...

    @overload
    async def describe_transactions(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, TransactionDescription | KafkaError]: ...

    async def describe_transactions(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, TransactionDescription | KafkaError]:
        """Describe the transactions of transactional ids (Kafka 3.0+).

        Args:
            transactional_ids: The transactional ids.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The descriptions by transactional id.

        Raises:
            PartialFailure: Some ids do not exist (TRANSACTIONAL_ID_NOT_FOUND), or may not be
                described.
            UnsupportedVersion: Brokers before 3.0 have no API for it.
            KafkaError: No coordinator could be reached.
        """
        results = await describe_transactions(
            self._requester(timeout_ms), as_list("transactional_ids", transactional_ids)
        )
        return finish_items(results, "transactional ids", return_errors=return_errors)

    async def list_transactions(
        self,
        *,
        states: Collection[TransactionState | str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids of all coordinators (Kafka 3.0+).

        Args:
            states: States of the transactions; empty for all.
            producer_ids: Ids of producers; empty for all.
            duration_ms: Only transactions that run for longer (Kafka 3.8+).
            transactional_id_pattern: Only ids that match this regular expression (RE2J) as a whole
                (Kafka 4.1+).
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The ids in order.

        Raises:
            PartialFailure: Some brokers failed, which are in `failed` by node id; `succeeded` has
                the listings of the others by transactional id.
            ValueError: A state does not exist.
            UnsupportedVersion: The brokers are too old for the API or a filter.
            KafkaError: No broker could be reached.
        """
        return await list_transactions(
            self._requester(timeout_ms),
            states=parse_names("states", TransactionState, states),
            producer_ids=list(producer_ids),
            duration_ms=duration_ms,
            transactional_id_pattern=transactional_id_pattern,
        )

    async def abort_transaction(
        self, spec: AbortTransactionSpec, *, timeout_ms: int | None = None
    ) -> None:
        """Abort an open transaction in one partition, past its coordinator.

        This is for hanging transactions; `find_hanging_transactions` finds them. A transaction that
        the coordinator knows is aborted by `force_terminate_transaction`.

        Args:
            spec: The partition and the producer.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: The epoch of the producer is not the current one (INVALID_PRODUCER_EPOCH),
                the coordinator epoch is outdated (TRANSACTION_COORDINATOR_FENCED), or the
                principal may not act as a broker.
            UnsupportedVersion: Brokers before 0.11 have no transactions.
            KafkaError: The leader could not be reached.
        """

        def build(
            tps: Sequence[TopicPartition], version: int, timeout_ms: int
        ) -> WriteTxnMarkersRequest:
            return marker_request(spec)

        request: ItemRequest[TopicPartition, None] = ItemRequest(
            api_key=ApiKey.WRITE_TXN_MARKERS, build=build, read=read_markers
        )
        partition = parse_topic_partition(spec.topic_partition)
        results = await self._requester(timeout_ms).request_items(request, [partition])
        error = results[partition]
        if error is not None:
            raise error

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout_ms: int | None = None
    ) -> None:
        """Abort the open transaction of a transactional id, and fence its producer (KIP-939).

        Args:
            transactional_id: The transactional id.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Raises:
            BrokerError: The principal may not use the id.
            UnsupportedVersion: Brokers before 0.11 have no transactions.
            KafkaError: The coordinator could not be reached.
        """
        fenced = await self._fence(self._requester(timeout_ms), [transactional_id])
        result = fenced[transactional_id]
        if isinstance(result, KafkaError):
            raise result

    @overload
    async def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: Literal[False] = False,
    ) -> dict[str, ProducerIdAndEpoch]: ...

    @overload
    async def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool,
    ) -> dict[str, ProducerIdAndEpoch | KafkaError]: ...

    async def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> Mapping[str, ProducerIdAndEpoch | KafkaError]:
        """Fence the producers of transactional ids; their open transactions are aborted.

        Args:
            transactional_ids: The transactional ids.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            The producer id and the new epoch by transactional id.

        Raises:
            PartialFailure: The principal may not use some ids.
            UnsupportedVersion: Brokers before 0.11 have no transactions.
            KafkaError: No coordinator could be reached.
        """
        results = await self._fence(self._requester(timeout_ms), transactional_ids)
        return finish_items(results, "transactional ids", return_errors=return_errors)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[AnyPartition | str] | None = None,
        *,
        broker_id: NodeId | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Find open transactions in partitions that no coordinator will finish (Kafka 3.0+).

        ::

            for each in await admin.find_hanging_transactions(["orders"]):
                await admin.abort_transaction(each.spec)

        Args:
            partitions: Partitions, or names of topics for all of theirs; by default all.
            broker_id: Only partitions that have a replica on this node, which is asked.
            max_transaction_timeout_ms: Brokers' `transaction.max.timeout.ms`. A transaction that is
                open for less time is not hanging.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            The hanging transactions, in order of partitions.

        Raises:
            PartialFailure: Some partitions or brokers failed.
            UnsupportedVersion: Brokers before 3.0 have no API for it.
            KafkaError: No broker could be reached.
        """
        return await find_hanging(
            self._requester(timeout_ms), partitions, broker_id, max_transaction_timeout_ms
        )

    async def _fence(
        self, requester: Requester, transactional_ids: Iterable[str]
    ) -> dict[str, ProducerIdAndEpoch | KafkaError]:
        # The coordinator uses it to write the new epoch. With a timeout of 1 ms, that could fail.
        transaction_timeout_ms = requester.cluster.config.request_timeout_ms

        def build(ids: Sequence[str], version: int, timeout_ms: int) -> InitProducerIdRequest:
            return InitProducerIdRequest(
                transactional_id=ids[0], transaction_timeout_ms=transaction_timeout_ms
            )

        async def fence(transactional_id: str) -> None:
            request: ItemRequest[str, ProducerIdAndEpoch] = ItemRequest(
                api_key=ApiKey.INIT_PRODUCER_ID,
                build=build,
                read=lambda response: _read_fenced(response, transactional_id),
                max_version=LAST_WITHOUT_TWO_PHASE_COMMIT,
                retried=_FENCE_RETRIED,
            )
            results.update(await requester.request_items(request, [transactional_id]))

        ids = list(dict.fromkeys(as_list("transactional_ids", transactional_ids)))
        results: dict[str, ProducerIdAndEpoch | KafkaError] = {}
        await requester.run_parallel(fence, [(each,) for each in ids])
        return {each: results[each] for each in ids}


def _read_fenced(response: InitProducerIdResponse, transactional_id: str) -> Iterator[ItemResult]:
    yield ItemResult(
        transactional_id, ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    )
