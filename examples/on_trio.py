"""Producer and Consumer under trio."""

from __future__ import annotations

import trio

from aiokafkawire import Broker, Consumer, Producer


async def main() -> None:
    async with Broker() as broker:
        servers = broker.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("greetings", value=b"hello from trio")
        async with Consumer(
            "greetings", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            with trio.fail_after(20):
                print((await consumer.getone()).value)


if __name__ == "__main__":
    trio.run(main)
