"""Operations on client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aiokafkawire.admin.items import ItemRequest, ItemResult, finish_items
from aiokafkawire.admin.operations import Operations
from aiokafkawire.admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    QuotaMatch,
)
from aiokafkawire.errors import KafkaError
from aiokafkawire.wire import ApiKey
from aiokafkawire.wire.messages.alter_client_quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
)
from aiokafkawire.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

__all__ = ("QuotaOperations",)

_EXACT = 0


class QuotaOperations(Operations):
    """Operations on client quotas."""

    async def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return quotas by entity (Kafka 2.6+).

        ::

            await admin.describe_client_quotas([ClientQuotaFilterComponent("user", "alice")])

        Args:
            components: Select entities that match all of them; empty for all entities.
            strict: Leave out entities that have further types.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.

        Returns:
            Value by quota, such as "producer_byte_rate" in bytes per second, by entity.

        Raises:
            BrokerError: A component has an unknown entity type (INVALID_REQUEST).
            UnsupportedVersion: Brokers before 2.6 have no API for it.
            KafkaError: No broker could be reached.
        """
        response = await self._requester(timeout_ms).request(
            DescribeClientQuotasRequest(components=[*map(_component, components)], strict=strict)
        )
        return {
            ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity}): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        return_errors: bool = False,
    ) -> dict[ClientQuotaEntity, KafkaError | None]:
        """Set and remove quotas (Kafka 2.6+).

        ::

            alice = ClientQuotaEntity({"user": "alice"})
            await admin.alter_client_quotas(
                [ClientQuotaAlteration(alice, {"producer_byte_rate": 1_048_576.0})]
            )

        Args:
            alterations: The changes, one per entity.
            validate_only: Only check the changes.
            timeout_ms: Timeout in milliseconds; defaults to `default_api_timeout_ms`.
            return_errors: Return errors as results, instead of raising `PartialFailure`.

        Returns:
            None for each entity.

        Raises:
            PartialFailure: Some entities were not changed: an entity type, quota or value is
                invalid (INVALID_REQUEST).
            ValueError: An entity has two alterations.
            UnsupportedVersion: Brokers before 2.6 have no API for it.
            KafkaError: The controller could not be reached.
        """
        wanted: dict[ClientQuotaEntity, ClientQuotaAlteration] = {}
        for each in alterations:
            if each.entity in wanted:
                raise ValueError(f"two alterations of {each.entity}")
            wanted[each.entity] = each

        def build(
            entities: Sequence[ClientQuotaEntity], version: int, timeout_ms: int
        ) -> AlterClientQuotasRequest:
            entries = [_entry(wanted[entity]) for entity in entities]
            return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        request: ItemRequest[ClientQuotaEntity, None] = ItemRequest(
            api_key=ApiKey.ALTER_CLIENT_QUOTAS, build=build, read=_read_altered
        )
        results = await self._requester(timeout_ms).request_items(request, wanted)
        return finish_items(results, "entities", return_errors=return_errors)


def _component(component: ClientQuotaFilterComponent) -> ComponentData:
    if isinstance(component.match, QuotaMatch):
        match_type, match = component.match.value, None
    else:
        match_type, match = _EXACT, component.match
    return ComponentData(entity_type=component.entity_type, match_type=match_type, match=match)


def _entry(alteration: ClientQuotaAlteration) -> AlterClientQuotasEntryData:
    return AlterClientQuotasEntryData(
        entity=[
            AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
            for kind, name in alteration.entity.entries.items()
        ],
        ops=[
            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in alteration.ops.items()
        ],
    )


def _read_altered(response: AlterClientQuotasResponse) -> Iterator[ItemResult]:
    for entry in response.entries:
        entity = ClientQuotaEntity({part.entity_type: part.entity_name for part in entry.entity})
        yield ItemResult(entity, None, entry.error_code, entry.error_message)
