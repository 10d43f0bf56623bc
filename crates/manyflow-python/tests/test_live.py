"""Clients of a real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Tuple

import pytest
from conftest import PROGRAM

import manyflow as mf

# Ends a test that hangs.
LIMIT_S = 60
SECURE = """\
name = "a"
clients = "127.0.0.1:0"
[client-tls]
certificate = "a.crt"
key = "a.key"
[[users]]
name = "ann"
password-file = "password"
"""


@contextlib.contextmanager
def running_daemon(*options: str) -> Iterator[str]:
    """Runs a daemon, and yields its address for clients."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: run `cargo build -p manyflow`")
    command = [str(PROGRAM), "daemon", *options]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert daemon.stdout
        line = daemon.stdout.readline()
        assert "nats://" in line or "tls://" in line, line
        yield line.rsplit("://", 1)[1].strip()
    finally:
        daemon.kill()
        daemon.communicate()


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a daemon that runs during the test."""
    with running_daemon("--name", "a", "--clients", "127.0.0.1:0", "--insecure", "--grace", "0s") as address:
        yield address


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuple[str, Path]]:
    """The address of a daemon that requires TLS and a password, and the file of its authority."""
    folder = tmp_path_factory.mktemp("secure")
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: run `cargo build -p manyflow`")
    keygen = [str(PROGRAM), "keygen", "--certificates", str(folder), "--daemon", "a=localhost"]
    subprocess.run(keygen, check=True, stdout=subprocess.DEVNULL)
    (folder / "password").write_text("secret\n")
    (folder / "daemon.toml").write_text(SECURE)
    with running_daemon(str(folder / "daemon.toml")) as address:
        yield "localhost:" + address.rsplit(":", 1)[1], folder / "ca.crt"


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


def test_a_client_connects_by_tls_with_a_password(secure: Tuple[str, Path]) -> None:
    address, ca = secure

    async def program() -> bytes:
        async with await mf.live.connect(address, tls=ca, user="ann", password="secret") as client:
            async with client.subscribe("news") as news:
                await client.publish("news", b"sealed")
                return (await news.__anext__()).payload

    assert asyncio.run(asyncio.wait_for(program(), LIMIT_S)) == b"sealed"


def test_a_client_without_the_authority_or_the_password_is_refused(secure: Tuple[str, Path], tmp_path: Path) -> None:
    address, ca = secure
    refused = [
        ({"tls": ca, "user": "ann", "password": "wrong"}, "refuses"),
        ({"tls": ca}, "refuses"),
        ({"user": "ann", "password": "secret"}, "TLS"),
        ({"tls": True, "user": "ann", "password": "secret"}, "tls=FILE"),
        ({"tls": tmp_path / "none.crt"}, "none.crt"),
    ]
    for options, problem in refused:
        with pytest.raises(mf.LiveError, match=problem) as caught:
            asyncio.run(mf.live.connect(address, **options))  # type: ignore[arg-type]
        assert caught.value.address == address
        assert "--" not in caught.value.problem
    with pytest.raises(ValueError, match="password"):
        asyncio.run(mf.live.connect(address, user="ann"))


def test_an_invalid_subject_is_an_error(address: str) -> None:
    async def program() -> None:
        async with await mf.live.connect(address) as client:
            with pytest.raises(mf.LiveError, match="not a valid subject"):
                await client.publish("two words", b"")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_the_example_of_the_manual_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    from test_documents import LIVE, blocks

    found = [block for block in blocks("docs/python.md") if LIVE in block]
    assert len(found) == 2
    # The second block uses what the first imports.
    names: dict[str, object] = {"__name__": "example"}
    for block in found:
        exec(compile(block.replace(LIVE, address), "docs/python.md", "exec"), names)
    assert capsys.readouterr().out == "news.sport b'3:1'\n3 layers, 1220 of 1220 bytes\n"


def test_a_client_serves_threads_with_event_loops_of_their_own(address: str) -> None:
    async def publish(client: mf.live.Client, number: int) -> None:
        for _ in range(20):
            await client.publish("numbers", bytes([number]))
        await client.flush()

    async def program() -> list[int]:
        async with await mf.live.connect(address) as client, client.subscribe("numbers") as numbers:
            await client.flush()
            threads = [threading.Thread(target=asyncio.run, args=(publish(client, number),)) for number in range(4)]
            for thread in threads:
                thread.start()
            received = [(await numbers.__anext__()).payload[0] for _ in range(80)]
            for thread in threads:
                await asyncio.to_thread(thread.join)
            return received

    received = asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert sorted(received) == sorted([0, 1, 2, 3] * 20)


def test_a_client_outlives_its_event_loop(address: str) -> None:
    client = asyncio.run(asyncio.wait_for(mf.live.connect(address), LIMIT_S))

    async def program() -> bytes:
        async with client.subscribe("news") as news:
            await client.publish("news", b"again")
            return (await news.__anext__()).payload

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(program(), LIMIT_S)) == b"again"
    asyncio.run(asyncio.wait_for(client.close(), LIMIT_S))


def test_clients_are_not_pickled(address: str) -> None:
    client = asyncio.run(asyncio.wait_for(mf.live.connect(address), LIMIT_S))
    for live in (client, client.subscribe("news")):
        with pytest.raises(TypeError, match="belongs to its process: connect in the other one"):
            pickle.dumps(live)
    asyncio.run(asyncio.wait_for(client.close(), LIMIT_S))


def test_a_forked_process_is_refused_and_its_parent_goes_on(address: str) -> None:
    client = asyncio.run(asyncio.wait_for(mf.live.connect(address), LIMIT_S))
    subscription = client.subscribe("news")

    async def joined() -> None:
        await subscription.__aenter__()

    async def next_message() -> bytes:
        await client.publish("news", b"to the parent")
        return (await subscription.__anext__()).payload

    asyncio.run(asyncio.wait_for(joined(), LIMIT_S))
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python itself warns of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        words = []
        try:
            for awaitable in (client.flush, lambda: mf.live.connect(address), subscription.__anext__):
                try:
                    asyncio.run(asyncio.wait_for(awaitable(), LIMIT_S))
                except RuntimeError as error:
                    words.append("refused" if "was forked from process" in str(error) else str(error))
            os.write(writer, " ".join(words).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "refused refused refused"
    os.waitpid(child, 0)
    assert asyncio.run(asyncio.wait_for(next_message(), LIMIT_S)) == b"to the parent"
    asyncio.run(asyncio.wait_for(client.close(), LIMIT_S))
