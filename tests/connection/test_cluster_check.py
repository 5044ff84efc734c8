"""The node that a client expects at an address."""

from __future__ import annotations

import pytest

from aiokafkawire.connection.cluster_check import ClusterCheck, ExpectedNode
from aiokafkawire.runtime import Address

HERE = Address("h", 1)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        ("c", 3, ExpectedNode("c", 3, HERE)),
        ("c", 0, ExpectedNode("c", 0, HERE)),
        ("c", None, None),
        ("c", -2, None),
        (None, 3, None),
    ],
)
def test_a_node_is_expected_if_cluster_and_node_are_known(
    cluster_id: str | None, node_id: int | None, expected: ExpectedNode | None
) -> None:
    check = ClusterCheck(lambda: cluster_id, lambda broker: None)
    assert check.expected(node_id, HERE) == expected
