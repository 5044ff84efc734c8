from __future__ import annotations

import json

import pytest

from aiokafkawire.admin import QuorumInfo, QuorumReplicaState
from aiokafkawire.cli.cluster import quorum_to_dict

from .conftest import Cli

slow = pytest.mark.slow


@slow
def test_nodes_and_features(cli: Cli, servers: str) -> None:
    shown = json.loads(cli("cluster", "nodes", "-b", servers, "--json")[1])
    addresses = [f"{node['host']}:{node['port']}" for node in shown["nodes"]]
    assert sorted(addresses) == sorted(servers.split(","))
    assert shown["controller"] in {node["node"] for node in shown["nodes"]}
    text = cli("cluster", "nodes", "-b", servers)[1].decode().splitlines()
    assert text[0] == f"cluster {shown['cluster_id']}, controller {shown['controller']}"
    assert text[1].split() == ["node", "host", "port", "rack", "fenced"]
    lines = cli("cluster", "features", "-b", servers, "--node", "1", "--json")[1].splitlines()
    features = {each["feature"]: each for each in map(json.loads, lines)}
    assert features["transaction.version"]["finalized"] == 2


@slow
def test_the_quorum(cli: Cli, servers: str) -> None:
    shown = json.loads(cli("cluster", "quorum", "-b", servers, "--json")[1])
    assert [each["role"] for each in shown["replicas"]].count("leader") == 1
    text = cli("cluster", "quorum", "-b", servers)[1].decode().splitlines()
    assert text[0].startswith(f"leader {shown['leader']}, epoch {shown['leader_epoch']}, high ")


def test_lag_and_roles_of_a_quorum() -> None:
    quorum = QuorumInfo(
        leader_id=1,
        leader_epoch=4,
        high_watermark=90,
        voters=(
            QuorumReplicaState(1, None, 100, None, None),
            QuorumReplicaState(2, None, 90, 5, 5),
        ),
        observers=(QuorumReplicaState(3, None, -1, None, None),),
        nodes={},
    )
    rows = quorum_to_dict(quorum)["replicas"]
    assert [(each["node"], each["role"], each["lag"]) for each in rows] == [
        (1, "leader", 0),
        (2, "voter", 10),
        (3, "observer", None),
    ]


@slow
def test_log_directories(cli: Cli, servers: str) -> None:
    assert cli("topics", "create", "-b", servers, "stored", "-p", "2", "-r", "2")[0] == 0
    lines = cli("cluster", "log-dirs", "-b", servers, "stored", "--json")[1].splitlines()
    shown = [json.loads(line) for line in lines]
    assert [each["broker"] for each in shown] == [1, 2]
    for each in shown:
        assert each["error"] is None
        assert [replica["partition"] for replica in each["replicas"]] == [0, 1]
    one = ("cluster", "log-dirs", "-b", servers, "--broker", "2", "stored", "--replicas")
    table = cli(*one)[1].decode().splitlines()
    assert len(table) == 3
    assert table[0].split()[:2] == ["broker", "log"]
    assert len(cli("cluster", "log-dirs", "-b", servers)[1].splitlines()) == 3
