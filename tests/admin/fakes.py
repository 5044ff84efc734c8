"""An admin client whose requests a test answers by a script."""

from __future__ import annotations

from aiokafkawire.admin import Admin
from aiokafkawire.admin.requester import Requester
from tests.admin.scripted import ScriptedCluster


class ScriptedAdmin(Admin):
    """An admin client that is never started; `cluster` answers its requests."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(bootstrap_servers="h:1")
        self.cluster = cluster

    def _requester(self, timeout_ms: int | None) -> Requester:
        return self.cluster.requester(5.0 if timeout_ms is None else timeout_ms / 1_000)
