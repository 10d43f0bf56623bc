"""Messages in layers, over two daemons with a thin link between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from typing import Dict, List

import pytest
from conftest import PROGRAM

import manyflow as mf

# Ends a test that hangs.
LIMIT_S = 120
# The layers of a message: 40,000 bytes, each doubling of its length with the same worth.
LAYERS = [(bytes([number]) * length, 10) for number, length in enumerate([2500, 2500, 5000, 10_000, 20_000])]
MESSAGES = 100
PURSE_S = 0.02
THIN_BITS_PER_S = 4e6


@contextlib.contextmanager
def running_daemon(*options: str) -> Iterator[Dict[str, str]]:
    """Runs a daemon, and yields its addresses for daemons and clients."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: run `cargo build -p manyflow`")
    fixed = ["daemon", "--json", "--listen", "127.0.0.1:0", "--clients", "127.0.0.1:0", "--insecure", "--grace", "0s"]
    daemon = subprocess.Popen([str(PROGRAM), *fixed, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout
        started = json.loads(daemon.stdout.readline())
        assert started["event"] == "started", started
        yield started
    finally:
        daemon.kill()
        daemon.communicate()


class ThinLink:
    """Forwards TCP connections to an address, each direction at a limited rate and with short queues."""

    def __init__(self, to: str) -> None:
        host, port = to.rsplit(":", 1)
        self.to = (host, int(port))

    async def __aenter__(self) -> str:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        server.bind(("127.0.0.1", 0))
        self.server = await asyncio.start_server(self.serve, sock=server, limit=4096)
        return "127.0.0.1:{}".format(server.getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, self.to)
        back, forth = await asyncio.open_connection(sock=other, limit=4096)
        await asyncio.gather(self.forward(reader, forth), self.forward(back, writer))

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1500):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(8 * len(data) / THIN_BITS_PER_S)
        writer.close()


async def wait_for_path(sender: mf.live.Client, members: List[mf.live.Subscription]) -> None:
    """Publishes until each member has got a message, and then the last one."""

    async def publish() -> None:
        while True:
            await sender.publish("cam", b"probe")
            await asyncio.sleep(0.05)

    probing = asyncio.ensure_future(publish())
    for member in members:
        await member.__anext__()
    probing.cancel()
    await sender.publish("cam", b"end")
    for member in members:
        while (await member.__anext__()).payload != b"end":
            pass


def test_each_member_gets_the_layers_that_its_link_carries() -> None:
    async def program(a: Dict[str, str]) -> List[List[mf.live.Message]]:
        async with ThinLink(a["daemons"]) as thin:
            with running_daemon("--name", "b", "--link", f"a={thin}") as b:
                connect = mf.live.connect
                async with await connect(a["clients"]) as sender, await connect(b["clients"]) as far:
                    async with sender.subscribe("cam") as near_cam, far.subscribe("cam") as far_cam:
                        await wait_for_path(sender, [near_cam, far_cam])
                        for _ in range(MESSAGES):
                            await sender.publish_layers("cam", LAYERS, purse_s=PURSE_S)
                        members = [near_cam, far_cam]
                        return [[await member.__anext__() for _ in range(MESSAGES)] for member in members]

    with running_daemon("--name", "a") as a:
        near, far = asyncio.run(asyncio.wait_for(program(a), LIMIT_S))
    layers = [layer for layer, _ in LAYERS]
    for message in near + far:
        assert message.whole_bytes == 40_000
        assert message.layers is not None and message.layers == layers[: len(message.layers)]
        assert message.payload == b"".join(message.layers), "it ends between two layers"
    assert all(message.layers == layers for message in near), "the sender's own daemon has no link in the way"
    cut = [message for message in far if message.layers != layers]
    assert cut, "the thin link has carried four times its rate"
    assert "of 40000 B" in repr(cut[0])


def test_layers_that_are_not_valid_are_errors() -> None:
    async def program(a: Dict[str, str]) -> None:
        async with await mf.live.connect(a["clients"]) as client:
            with pytest.raises(mf.LiveError, match="most valuable"):
                await client.publish_layers("cam", [(b"abc", 1), (b"d", 9)], purse_s=0.02)
            with pytest.raises(mf.LiveError, match="layers"):
                await client.publish_layers("cam", [], purse_s=0.02)
            with pytest.raises(mf.LiveError, match="49152"):
                await client.publish_layers("cam", [(bytes(50_000), 1)], purse_s=0.02)
            with pytest.raises(ValueError, match="purse_s"):
                await client.publish_layers("cam", [(b"a", 1)], purse_s=-1.0)
            with pytest.raises(ValueError, match="65,535"):
                await client.publish_layers("cam", [(bytes(70_000), 1)], purse_s=0.02)
            async with client.subscribe("news") as news:
                await client.publish("news", b"whole")
                message = await news.__anext__()
                assert (message.layers, message.whole_bytes) == (None, None)

    with running_daemon("--name", "a") as a:
        asyncio.run(asyncio.wait_for(program(a), LIMIT_S))
