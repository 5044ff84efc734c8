"""Operations on producers and transactions."""

from __future__ import annotations

from typing import Any

from aiokafkawire.admin import AbortTransactionSpec, TransactionState
from aiokafkawire.types import ProducerIdAndEpoch, TopicPartition
from tests.brokers.admin_parity.case import Case, World
from tests.brokers.admin_parity.java_admin import JavaAdmin

__all__ = ("CASES",)


async def finished(world: World, name: str) -> None:
    await world.topic(name)
    await world.transaction(name, name, finish=True)


async def open_transaction(world: World, name: str) -> None:
    await world.topic(name)
    await world.transaction(name, name, finish=False)


def java_producers(java: JavaAdmin, name: str) -> dict[str, Any]:
    # Java looks the leader of a partition that does not exist up until the timeout.
    partitions = [java.partition(name, number) for number in (0, 1)]
    result = java.admin.describeProducers(partitions)
    return {f"{name}-{each.partition()}": result.partitionResult(each) for each in partitions}


def java_transactions(java: JavaAdmin, name: str) -> dict[str, Any]:
    ids = [name, f"{name}-missing"]
    result = java.admin.describeTransactions(ids)
    return {each: result.description(each) for each in ids}


def java_abort(java: JavaAdmin, name: str) -> Any:
    """Abort the open transaction of the only producer of a partition."""
    partition = java.partition(name, 0)
    state = java.admin.describeProducers([partition]).partitionResult(partition).get()
    (producer,) = state.activeProducers()
    spec = java.type("AbortTransactionSpec")(
        partition, producer.producerId(), producer.producerEpoch(), 0
    )
    return java.admin.abortTransaction(spec).all()


async def our_abort(world: World, name: str) -> None:
    tp = TopicPartition(name, 0)
    ((producer,),) = (await world.admin.describe_producers([tp])).values()
    await world.admin.abort_transaction(
        AbortTransactionSpec(tp, producer.producer_id, producer.producer_epoch, 0)
    )


def java_old_abort(java: JavaAdmin, name: str) -> Any:
    """Abort with an epoch that is too low."""
    partition = java.partition(name, 0)
    state = java.admin.describeProducers([partition]).partitionResult(partition).get()
    (producer,) = state.activeProducers()
    spec = java.type("AbortTransactionSpec")(
        partition, producer.producerId(), producer.producerEpoch() - 1, 0
    )
    return java.admin.abortTransaction(spec).all()


async def our_old_abort(world: World, name: str) -> None:
    tp = TopicPartition(name, 0)
    ((producer,),) = (await world.admin.describe_producers([tp])).values()
    await world.admin.abort_transaction(
        AbortTransactionSpec(tp, producer.producer_id, producer.producer_epoch - 1, 0)
    )


def java_fence(java: JavaAdmin, name: str) -> dict[str, Any]:
    result = java.admin.fenceProducers([name])
    return {name: {"producer_id": result.producerId(name), "epoch": result.epochId(name)}}


def epochs(fenced: dict[str, Any]) -> dict[str, Any]:
    """Leave out the producer ids."""
    return {name: {"epoch": each["epoch"]} for name, each in fenced.items()}


def our_epochs(fenced: dict[str, ProducerIdAndEpoch]) -> dict[str, Any]:
    return {name: {"epoch": each.epoch} for name, each in fenced.items()}


def java_listed(java: JavaAdmin, name: str) -> Any:
    states = java.type("TransactionState")
    options = java.type("ListTransactionsOptions")().filterStates({states.ONGOING})
    return java.admin.listTransactions(options.filterOnTransactionalIdPattern(f"{name}.*")).all()


CASES = (
    Case(
        "describe_producers",
        java_producers,
        lambda world, name: world.admin.describe_producers(
            [(name, 0), (name, 1)], return_errors=True
        ),
        open_transaction,
        shared=True,
    ),
    Case(
        "describe_transactions",
        java_transactions,
        lambda world, name: world.admin.describe_transactions(
            [name, f"{name}-missing"], return_errors=True
        ),
        open_transaction,
        shared=True,
    ),
    Case(
        "describe_transactions",
        java_transactions,
        lambda world, name: world.admin.describe_transactions(
            [name, f"{name}-missing"], return_errors=True
        ),
        finished,
        shared=True,
        title="finished",
    ),
    Case(
        "list_transactions",
        lambda java, name: java.admin.listTransactions().all(),
        lambda world, name: world.admin.list_transactions(),
        open_transaction,
        shared=True,
    ),
    Case(
        "list_transactions",
        java_listed,
        lambda world, name: world.admin.list_transactions(
            states=[TransactionState.ONGOING], transactional_id_pattern=f"{name}.*"
        ),
        open_transaction,
        shared=True,
        title="filtered",
    ),
    Case("abort_transaction", java_abort, our_abort, open_transaction),
    Case("abort_transaction", java_old_abort, our_old_abort, finished, title="old epoch"),
    Case(
        "force_terminate_transaction",
        lambda java, name: java.admin.forceTerminateTransaction(name).result(),
        lambda world, name: world.admin.force_terminate_transaction(name),
        open_transaction,
    ),
    Case(
        "fence_producers",
        java_fence,
        lambda world, name: world.admin.fence_producers([name]),
        open_transaction,
        adapt=epochs,
        adapt_ours=our_epochs,
    ),
)
