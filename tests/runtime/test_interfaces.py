"""Addresses as text, and the runtime that there is against the seams."""

from __future__ import annotations

import pytest

from aiokafkawire.runtime import NEVER, Address, Clock, RealRuntime, Runtime


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("localhost", "localhost:9092"),
        ("10.0.0.1", "10.0.0.1:9092"),
        ("::1", "[::1]:9092"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9092"),
    ],
)
def test_an_address_is_written_as_clients_accept_it(host: str, text: str):
    assert str(Address(host, 9092)) == text


async def test_the_real_runtime_implements_the_interface():
    runtime = RealRuntime()
    for seam, made in ((Runtime, runtime), (Clock, runtime.clock)):
        wanted = {name for name in vars(seam) if not name.startswith("_")}
        assert wanted
        assert wanted <= set(dir(made))
    assert runtime.clock.now() < NEVER
