"""Server properties of test clusters: topics on demand, no delays, small internal topics."""

from __future__ import annotations

from tests.brokers.process import HOST
from tests.brokers.releases import Mode, Release

LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""
"""Releases before 4.0 log nothing without a configuration."""


def kraft_settings(
    release: Release,
    node_id: int,
    port: int,
    controllers: dict[int, int],
    inter_broker_port: int | None = None,
) -> dict[str, str]:
    """`controllers`: node id -> port of its controller, for all nodes."""
    listener = f"PLAINTEXT://{HOST}:{port}"
    voters = (f"{each}@{HOST}:{its_port}" for each, its_port in controllers.items())
    apart = {}
    if inter_broker_port is not None:
        listener += f",INTERNAL://{HOST}:{inter_broker_port}"
        apart = {
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "INTERNAL", "CONTROLLER")
            ),
        }
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"{listener},CONTROLLER://{HOST}:{controllers[node_id]}",
        "advertised.listeners": listener,
        "controller.listener.names": "CONTROLLER",
    }
    return settings | apart | _common(release, len(controllers))


def zookeeper_settings(
    release: Release, node_id: int, port: int, zookeeper_port: int, nodes: int
) -> dict[str, str]:
    listener = f"PLAINTEXT://{HOST}:{port}"
    if release.number >= (0, 9):
        where = {"listeners": listener, "advertised.listeners": listener}
    else:
        where = {"host.name": HOST, "port": str(port)}
    return {
        "broker.id": str(node_id),
        "zookeeper.connect": f"{HOST}:{zookeeper_port}",
        **where,
        **_common(release, nodes),
    }


def _common(release: Release, nodes: int) -> dict[str, str]:
    """Settings by the release that brought them: older ones warn of what they do not know."""
    replicas = str(min(3, nodes))
    in_sync = "2" if nodes >= 3 else "1"
    settings = {
        "num.partitions": "2",
        "default.replication.factor": replicas,
        "auto.create.topics.enable": "true",
    }
    if (0, 10, 1) <= release.number < (1, 0):
        # The default since then. Without it, the response to DeleteTopics comes at the timeout.
        settings["delete.topic.enable"] = "true"
    if release.number >= (0, 8, 2):
        settings["min.insync.replicas"] = in_sync
        settings["offsets.topic.replication.factor"] = replicas
        settings["offsets.topic.num.partitions"] = "4"
    if release.number >= (0, 9):
        # Tests of dead members would otherwise wait 6 seconds each.
        settings["group.min.session.timeout.ms"] = "500"
        # Its buffer alone is larger than the heap.
        settings["log.cleaner.enable"] = "false"
    if release.number >= (0, 11):
        settings["group.initial.rebalance.delay.ms"] = "0"
        settings["transaction.state.log.replication.factor"] = replicas
        settings["transaction.state.log.num.partitions"] = "4"
        settings["transaction.state.log.min.isr"] = in_sync
    if release.number >= (4,):
        settings["share.coordinator.state.topic.replication.factor"] = replicas
        settings["share.coordinator.state.topic.min.isr"] = in_sync
        # A rebalance of the consumer protocol takes a few heartbeats.
        settings["group.consumer.min.heartbeat.interval.ms"] = "100"
        settings["group.consumer.heartbeat.interval.ms"] = "200"
        settings["group.consumer.min.session.timeout.ms"] = "500"
        settings["group.consumer.session.timeout.ms"] = "3000"
    if release.number >= (4, 2):
        settings["group.share.min.heartbeat.interval.ms"] = "100"
        settings["group.share.heartbeat.interval.ms"] = "200"
        settings["group.share.min.session.timeout.ms"] = "500"
        settings["group.share.min.record.lock.duration.ms"] = "1000"
    if release.number >= (4, 3):
        settings["group.consumer.assignment.interval.ms"] = "0"
        settings["group.share.assignment.interval.ms"] = "0"
    return settings


def needs_log4j(release: Release) -> bool:
    return release.mode is Mode.ZOOKEEPER or release.number < (4,)
