"""Broker configs, as in Kafka 4.3."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiokafkawire.broker.api_error import ApiError, invalid_request
from aiokafkawire.broker.configs.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    STRING,
    ConfigDef,
)

__all__ = ("BROKER_CONFIGS", "DYNAMIC_CONFIGS", "STATIC_CONFIGS", "validate_broker_configs")

DYNAMIC_CONFIGS: Mapping[str, ConfigDef] = {
    "background.threads": ConfigDef(INT, "10", "Threads for background tasks.", low=1),
    "compression.gzip.level": ConfigDef(
        INT, "-1", "Level of gzip where the broker compresses with it."
    ),
    "compression.lz4.level": ConfigDef(
        INT, "9", "Level of lz4 where the broker compresses with it.", low=1, high=17
    ),
    "compression.type": ConfigDef(
        STRING,
        "producer",
        "Codec in which batches are stored.",
        valid_values=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": ConfigDef(
        INT, "3", "Level of zstd where the broker compresses with it.", low=-131072, high=22
    ),
    "group.consumer.assignment.interval.ms": ConfigDef(
        INT,
        "",
        "Least time between two assignments of a consumer group, in ms.",
        option="group_consumer_assignment_interval_ms",
        low=0,
    ),
    "group.coordinator.cached.buffer.max.bytes": ConfigDef(
        INT, "1048588", "Largest buffer that the group coordinator keeps."
    ),
    "group.share.assignment.interval.ms": ConfigDef(
        INT,
        "",
        "Least time between two assignments of a share group, in ms.",
        option="group_share_assignment_interval_ms",
        low=0,
    ),
    "group.streams.assignment.interval.ms": ConfigDef(
        INT, "1000", "Least time between two assignments of a streams group, in ms.", low=0
    ),
    "log.cleaner.backoff.ms": ConfigDef(
        LONG, "15000", "Pause of the cleaner without a log to clean, in ms."
    ),
    "log.cleaner.dedupe.buffer.size": ConfigDef(
        LONG, "134217728", "Memory of the cleaner for keys, in bytes."
    ),
    "log.cleaner.delete.retention.ms": ConfigDef(
        LONG, "86400000", "Time for which compaction keeps tombstones, in ms.", low=0
    ),
    "log.cleaner.io.buffer.load.factor": ConfigDef(
        DOUBLE, "0.9", "Fill level of the buffer of the cleaner."
    ),
    "log.cleaner.io.buffer.size": ConfigDef(
        INT, "524288", "Memory of the cleaner for reads and writes, in bytes."
    ),
    "log.cleaner.io.max.bytes.per.second": ConfigDef(
        DOUBLE, "1.7976931348623157E308", "Bytes that the cleaner reads and writes in a second."
    ),
    "log.cleaner.max.compaction.lag.ms": ConfigDef(
        LONG, MAX_LONG, "Longest time that a record may wait for compaction, in ms.", low=1
    ),
    "log.cleaner.min.cleanable.ratio": ConfigDef(
        DOUBLE, "0.5", "Share of a log that must be dirty before it is compacted.", low=0, high=1
    ),
    "log.cleaner.min.compaction.lag.ms": ConfigDef(
        LONG, "0", "Shortest time for which a record is not compacted, in ms.", low=0
    ),
    "log.cleaner.threads": ConfigDef(INT, "1", "Threads of the cleaner.", low=0),
    "log.cleanup.policy": ConfigDef(
        LIST,
        "delete",
        "Whether old segments are deleted, compacted, or both.",
        valid_values=("compact", "delete"),
    ),
    "log.flush.interval.messages": ConfigDef(
        LONG, MAX_LONG, "Number of records after which a log is synced to disk.", low=1
    ),
    "log.flush.interval.ms": ConfigDef(
        LONG, None, "Time after which a log is synced to disk, in ms."
    ),
    "log.index.interval.bytes": ConfigDef(
        INT, "4096", "Bytes of a log between two entries of the offset index.", low=0
    ),
    "log.index.size.max.bytes": ConfigDef(
        INT, "10485760", "Size of the index of a segment.", low=4
    ),
    "log.local.retention.bytes": ConfigDef(
        LONG, "-2", "Size of the local part of a tiered log.", low=-2
    ),
    "log.local.retention.ms": ConfigDef(
        LONG, "-2", "Age of the local part of a tiered log, in ms.", low=-2
    ),
    "log.message.timestamp.after.max.ms": ConfigDef(
        LONG,
        "3600000",
        "How far a record timestamp may be after the broker's clock, in ms.",
        option="timestamp_after_max_ms",
        low=0,
    ),
    "log.message.timestamp.before.max.ms": ConfigDef(
        LONG, MAX_LONG, "How far a record timestamp may be before the broker's clock, in ms.", low=0
    ),
    "log.message.timestamp.type": ConfigDef(
        STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the time of the append.",
        valid_values=("CreateTime", "LogAppendTime"),
    ),
    "log.preallocate": ConfigDef(
        BOOLEAN, "false", "Whether the file of a segment is allocated when the segment is created."
    ),
    "log.retention.bytes": ConfigDef(
        LONG,
        "-1",
        "Size at which a partition deletes old segments; -1 is no limit.",
        option="retention_bytes",
    ),
    "log.retention.ms": ConfigDef(
        LONG, None, "Age at which a segment is deleted, in ms; -1 is no limit."
    ),
    "log.roll.jitter.ms": ConfigDef(
        LONG, None, "Largest random time by which a segment rolls earlier, in ms."
    ),
    "log.roll.ms": ConfigDef(LONG, None, "Time after which a log rolls to a new segment, in ms."),
    "log.segment.bytes": ConfigDef(
        INT,
        "1073741824",
        "Size at which a log rolls to a new segment.",
        option="segment_bytes",
        low=1048576,
    ),
    "log.segment.delete.delay.ms": ConfigDef(
        LONG, "60000", "Time after which the file of a deleted segment is removed, in ms.", low=0
    ),
    "max.connection.creation.rate": ConfigDef(
        INT, "2147483647", "Connections that a broker accepts in a second.", low=0
    ),
    "max.connections": ConfigDef(
        INT, "2147483647", "Connections of a broker.", option="max_connections", low=0
    ),
    "max.connections.per.ip": ConfigDef(INT, "2147483647", "Connections of an address.", low=0),
    "max.connections.per.ip.overrides": ConfigDef(
        STRING, "", "Connections of some addresses, as address:number."
    ),
    "message.max.bytes": ConfigDef(
        INT,
        "1048588",
        "Largest record batch, after compression.",
        option="max_message_bytes",
        low=0,
    ),
    "min.insync.replicas": ConfigDef(
        INT,
        "1",
        "Replicas that must be in sync for a write with acks=all.",
        option="min_insync_replicas",
        low=1,
    ),
    "num.io.threads": ConfigDef(INT, "8", "Threads that process requests.", low=1),
    "num.network.threads": ConfigDef(
        INT, "3", "Threads that read requests and write responses.", low=1
    ),
    "num.recovery.threads.per.data.dir": ConfigDef(
        INT, "2", "Threads that recover the logs of a directory.", low=1
    ),
    "num.replica.fetchers": ConfigDef(
        INT, "1", "Fetchers for each broker that is replicated from.", low=1
    ),
    "producer.id.expiration.ms": ConfigDef(
        INT, "86400000", "Time after which an unused producer id is forgotten, in ms.", low=1
    ),
    "remote.fetch.max.wait.ms": ConfigDef(
        INT, "500", "Time that a fetch waits for the remote storage, in ms."
    ),
    "share.coordinator.cached.buffer.max.bytes": ConfigDef(
        INT, "1048588", "Largest buffer that the share coordinator keeps."
    ),
    "transaction.partition.verification.enable": ConfigDef(
        BOOLEAN, "true", "Whether the broker verifies the partitions of transactions."
    ),
    "unclean.leader.election.enable": ConfigDef(
        BOOLEAN, "false", "Whether a replica that is out of sync may become the leader."
    ),
}
"""Configs that clients can change while the broker runs."""

_OPTIONS: Mapping[str, ConfigDef] = {
    "auto.create.topics.enable": ConfigDef(BOOLEAN, option="auto_create_topics"),
    "connections.max.idle.ms": ConfigDef(LONG, option="connections_max_idle_ms"),
    "fetch.max.bytes": ConfigDef(INT, option="max_fetch_bytes"),
    "group.consumer.heartbeat.interval.ms": ConfigDef(
        INT, option="group_consumer_heartbeat_interval_ms"
    ),
    "group.consumer.max.size": ConfigDef(INT, option="group_consumer_max_size"),
    "group.consumer.migration.policy": ConfigDef(STRING, option="group_consumer_migration_policy"),
    "group.consumer.min.heartbeat.interval.ms": ConfigDef(
        INT, option="group_consumer_min_heartbeat_interval_ms"
    ),
    "group.consumer.min.session.timeout.ms": ConfigDef(
        INT, option="group_consumer_min_session_timeout_ms"
    ),
    "group.consumer.session.timeout.ms": ConfigDef(INT, option="group_consumer_session_timeout_ms"),
    "group.initial.rebalance.delay.ms": ConfigDef(INT, option="group_initial_rebalance_delay_ms"),
    "group.max.session.timeout.ms": ConfigDef(INT, option="group_max_session_timeout_ms"),
    "group.max.size": ConfigDef(INT, option="group_max_size"),
    "group.min.session.timeout.ms": ConfigDef(INT, option="group_min_session_timeout_ms"),
    "group.share.delivery.count.limit": ConfigDef(INT, option="group_share_delivery_count_limit"),
    "group.share.heartbeat.interval.ms": ConfigDef(INT, option="group_share_heartbeat_interval_ms"),
    "group.share.max.share.sessions": ConfigDef(INT, option="group_share_max_share_sessions"),
    "group.share.max.size": ConfigDef(INT, option="group_share_max_size"),
    "group.share.min.heartbeat.interval.ms": ConfigDef(
        INT, option="group_share_min_heartbeat_interval_ms"
    ),
    "group.share.min.record.lock.duration.ms": ConfigDef(
        INT, option="group_share_min_record_lock_duration_ms"
    ),
    "group.share.min.session.timeout.ms": ConfigDef(
        INT, option="group_share_min_session_timeout_ms"
    ),
    "group.share.partition.max.record.locks": ConfigDef(
        INT, option="group_share_partition_max_record_locks"
    ),
    "group.share.record.lock.duration.ms": ConfigDef(
        INT, option="group_share_record_lock_duration_ms"
    ),
    "group.share.session.timeout.ms": ConfigDef(INT, option="group_share_session_timeout_ms"),
    "num.partitions": ConfigDef(INT, option="default_partitions"),
    "offset.metadata.max.bytes": ConfigDef(INT, option="offset_metadata_max_bytes"),
    "socket.request.max.bytes": ConfigDef(INT, option="max_request_bytes"),
    "transaction.max.timeout.ms": ConfigDef(INT, option="transaction_max_timeout_ms"),
}

BROKER_CONFIGS: Mapping[str, ConfigDef] = dict(sorted({**DYNAMIC_CONFIGS, **_OPTIONS}.items()))
"""Configs that a node describes."""

_STATIC = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
advertised.listeners alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
auto.create.topics.enable auto.leader.rebalance.enable broker.heartbeat.interval.ms
broker.id broker.rack broker.session.timeout.ms client.quota.callback.class
connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
controlled.shutdown.enable controller.listener.names controller.quorum.append.linger.ms
controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
controller.quota.window.size.seconds controller.socket.timeout.ms
create.topic.policy.class.name default.replication.factor
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
fetch.max.bytes fetch.purgatory.purge.interval.requests group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms
group.consumer.max.size group.consumer.migration.policy
group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.background.threads
group.coordinator.rebalance.protocols group.coordinator.threads
group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
group.min.session.timeout.ms group.share.assignors group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.max.standby.replicas
group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas
group.streams.session.timeout.ms initial.broker.registration.timeout.ms
inter.broker.listener.name kafka.metrics.polling.interval.secs kafka.metrics.reporters
leader.imbalance.check.interval.seconds log.cleaner.enable log.dir
log.dir.failure.timeout.ms log.dirs log.flush.offset.checkpoint.interval.ms
log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
log.retention.check.interval.ms log.retention.hours log.retention.minutes log.roll.hours
log.roll.jitter.hours max.incremental.fetch.session.cache.slots
max.request.partition.size.limit metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms metrics.num.samples
metrics.recording.level metrics.sample.window.ms node.id num.partitions
num.replica.alter.log.dirs.threads offset.metadata.max.bytes offsets.commit.timeout.ms
offsets.load.buffer.size offsets.retention.check.interval.ms offsets.retention.minutes
offsets.topic.compression.codec offsets.topic.num.partitions
offsets.topic.replication.factor offsets.topic.segment.bytes process.roles
producer.purgatory.purge.interval.requests queued.max.request.bytes queued.max.requests
quota.window.num quota.window.size.seconds remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.fetch.backoff.ms replica.fetch.max.bytes
replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms sasl.client.callback.handler.class
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
sasl.server.max.receive.size security.inter.broker.protocol security.providers
share.coordinator.append.linger.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes
socket.request.max.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
ssl.principal.mapping.rules telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.replication.factor
transaction.state.log.segment.bytes transaction.two.phase.commit.enable
transactional.id.expiration.ms
"""

STATIC_CONFIGS = frozenset(_STATIC.split())
"""Configs that clients cannot change while the broker runs."""

_THROTTLED_RATES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)

_OF_A_LISTENER = re.compile(r"(ssl|sasl)\..*")


def validate_broker_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a broker in the form that DescribeConfigs shows.

    An unknown name is accepted, as in Kafka: a plugin may define it.

    Raises:
        ApiError: A config cannot be changed while the broker runs, or is invalid.
    """
    fixed = [name for name in configs if name in STATIC_CONFIGS]
    if fixed:
        raise invalid_request(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    of_listeners = [name for name in configs if _OF_A_LISTENER.fullmatch(name)]
    if of_listeners:
        raise invalid_request(
            "These security configs can be dynamically updated only per-listener using the"
            f" listener prefix: [{', '.join(of_listeners)}]"
        )
    try:
        return {name: _parse(name, value) for name, value in configs.items()}
    except ApiError as error:
        # The broker refuses it before the controller sees it.
        raise invalid_request(str(error)) from error


def _parse(name: str, value: str) -> str:
    config = DYNAMIC_CONFIGS.get(name)
    if name in _THROTTLED_RATES:
        config = ConfigDef(LONG, low=0)
    return value if config is None else config.parse(name, value)
