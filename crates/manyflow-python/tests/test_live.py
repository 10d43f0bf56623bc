"""Clients of a real daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY

import manyflow as mf

PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / "manyflow"
# Ends a test that hangs.
LIMIT_S = 60


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a daemon that runs during the test."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: run `cargo build -p manyflow`")
    command = [str(PROGRAM), "daemon", "--name", "a", "--clients", "127.0.0.1:0", "--insecure", "--grace", "0s"]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert daemon.stdout
        line = daemon.stdout.readline()
        assert "nats://" in line, line
        yield line.rsplit("nats://", 1)[1].strip()
    finally:
        daemon.kill()
        daemon.communicate()


def test_a_subscriber_receives_what_is_published(address: str) -> None:
    async def program() -> list[tuple[str, bytes]]:
        async with await mf.live.connect(address) as ann, await mf.live.connect(address) as bob:
            assert ann.address == address
            async with bob.subscribe("chat.*") as heard:
                for number in range(3):
                    await ann.publish("chat.ann", bytes([number, 0, 255]))
                await ann.publish("other", b"not for bob")
                await ann.publish("chat.end", b"")
                received = []
                async for message in heard:
                    received.append((message.subject, message.payload))
                    if message.subject == "chat.end":
                        break
                return received

    received = asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert received == [*(("chat.ann", bytes([number, 0, 255])) for number in range(3)), ("chat.end", b"")]


def test_a_closed_client_ends_its_subscriptions_and_publishes_no_more(address: str) -> None:
    async def program() -> None:
        client = await mf.live.connect(address)
        async with client.subscribe("news") as news:
            await client.publish("news", b"last")
            await client.close()
            assert [message.payload async for message in news] == [b"last"]
            with pytest.raises(mf.LiveError, match=address):
                await client.publish("news", b"late")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_cancelled_wait_ends_and_the_subscription_goes_on(address: str) -> None:
    async def program() -> bytes:
        async with await mf.live.connect(address) as client, client.subscribe("news") as news:
            waiting = asyncio.ensure_future(news.__anext__())
            await client.flush()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            # The Rust future holds the stream until it is dropped; only then another wait gets the message.
            again = asyncio.ensure_future(news.__anext__())
            await client.flush()
            await client.publish("news", b"after")
            return (await again).payload

    assert asyncio.run(asyncio.wait_for(program(), LIMIT_S)) == b"after"


def test_a_refused_connection_names_the_address() -> None:
    with socket.socket() as unused:
        # The port is bound, but nobody listens there.
        unused.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{}".format(unused.getsockname()[1])
        with pytest.raises(mf.LiveError) as caught:
            asyncio.run(mf.live.connect(address))
    assert caught.value.address == address
    assert address in str(caught.value)


def test_an_invalid_subject_is_an_error(address: str) -> None:
    async def program() -> None:
        async with await mf.live.connect(address) as client:
            with pytest.raises(mf.LiveError, match="not a valid subject"):
                await client.publish("two words", b"")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_the_example_of_the_manual_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    from test_documents import LIVE, blocks

    found = [block for block in blocks("docs/python.md") if LIVE in block]
    assert len(found) == 1
    exec(compile(found[0].replace(LIVE, address), "docs/python.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "news.sport b'3:1'\n"
