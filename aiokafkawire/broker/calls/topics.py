"""Calls of a broker that change topics, users and permissions."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafkawire.broker.acls import Acl
from aiokafkawire.broker.api_error import ApiError
from aiokafkawire.broker.authentication import (
    check_user,
)
from aiokafkawire.broker.authorizer import Authorizer
from aiokafkawire.broker.calls.base import BrokerBase
from aiokafkawire.errors import KafkaError
from aiokafkawire.security import Secret
from aiokafkawire.wire import error_for

__all__ = ("BrokerTopicCalls",)


class BrokerTopicCalls(BrokerBase):
    """Topics, users and ACLs."""

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic.

        Args:
            name: Name of the topic.
            partitions: Number of partitions. Defaults to the option `default_partitions`.
            replication_factor: Replicas of each partition. Defaults to the option
                `default_replication_factor`.
            configs: Topic configs by Kafka's names, such as `retention.ms`.

        Raises:
            BrokerError: With the error code of the CreateTopics API.
        """
        state = self._running
        try:
            state.cluster.create_topic(
                name,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                configs=configs,
            )
        except ApiError as error:
            raise error_for(error.code, topic=name) from error
        await self._wait_for_metadata_propagation(state)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records.

        Raises:
            BrokerError: The topic does not exist.
        """
        cluster = self._running.cluster
        try:
            cluster.delete_topic(cluster.topic(name))
        except ApiError as error:
            raise error_for(error.code, topic=name) from error
        await self._wait_for_metadata_propagation(self._running)

    async def add_partitions(self, topic: str, total_count: int) -> None:
        """Raise the number of partitions of a topic to `total_count`.

        Raises:
            BrokerError: With the error code of the CreatePartitions API.
        """
        cluster = self._running.cluster
        try:
            cluster.add_partitions(cluster.topic(topic), total_count)
        except ApiError as error:
            raise error_for(error.code, topic=topic) from error
        await self._wait_for_metadata_propagation(self._running)

    def set_password(self, username: str, password: str) -> None:
        """Set the password of a user for PLAIN and SCRAM; add the user if there is none.

        Open connections stay, until they must authenticate again.

        Args:
            username: Name of the user.
            password: New password.

        Raises:
            InvalidOption: The name or password is empty or has a NUL character.
        """
        check_user(username, password)
        self._running.credentials.set_password(username, Secret(password))

    def delete_user(self, username: str) -> None:
        """Remove a user of SASL, if there is one. Open connections stay."""
        self._running.credentials.delete_user(username)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Raise the log start offset of a partition, as retention does.

        Raises:
            BrokerError: The change cannot be stored (KAFKA_STORAGE_ERROR).
        """
        partition_state, state = self._partition(topic, partition), self._running
        replication = state.replication
        for each in (
            [partition_state] if replication is None else replication.replicas(partition_state)
        ):
            each.log.delete_before(before_offset)
            each.on_change.notify()
        try:
            state.cluster.save()
        except ApiError as error:
            raise error_for(error.code, topic=topic, partition=partition) from error

    # --- client metrics ----------------------------------------------------------------------

    # --- permissions -------------------------------------------------------------------------

    @property
    def acls(self) -> tuple[Acl, ...]:
        """The ACLs, also those that clients created.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        return tuple(Acl.from_binding(binding) for binding in sorted(self._require_authorizer()))

    def add_acls(self, *acls: Acl) -> None:
        """Add ACLs. They apply to the next request of every connection.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        for acl in acls:
            self._require_authorizer().add(acl.binding)

    def remove_acls(self, *acls: Acl) -> None:
        """Remove ACLs, if they exist. The next request of every connection notices it.

        Raises:
            KafkaError: The broker has no `acls`.
        """
        for acl in acls:
            self._require_authorizer().remove(acl.binding)

    def _require_authorizer(self) -> Authorizer:
        if self._authorizer is None:
            raise KafkaError("the broker has no authorizer: create it with acls=[]")
        return self._authorizer
