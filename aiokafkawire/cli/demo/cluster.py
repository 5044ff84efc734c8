"""The demo's cluster as a separate process: `python -m aiokafkawire.cli.demo.cluster`.

Reads `kill NODE` and `start NODE` from stdin, and ends when stdin closes.
"""

from __future__ import annotations

import sys

import anyio

from aiokafkawire.broker import Broker
from aiokafkawire.cli.demo.children import Commands, send_event
from aiokafkawire.cli.run_loop import BACKENDS

__all__ = ("main", "serve")


async def serve(nodes: int) -> None:
    """Run the cluster and execute commands until stdin closes."""
    async with Broker(nodes, auto_create_topics=False) as broker:
        send_event("ready", servers=broker.bootstrap_servers, nodes=list(broker.nodes))
        commands = Commands()
        while (command := await commands.next()) is not None:
            word, node = command
            if word == "kill":
                await broker.kill(int(node))
            elif word == "start":
                await broker.restart(int(node))
            send_event(word, node=int(node))


def main(nodes: str, backend: str) -> None:
    library, options = BACKENDS[backend]
    anyio.run(serve, int(nodes), backend=library, backend_options=options)


if __name__ == "__main__":
    main(*sys.argv[1:])
