"""Files on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from pathlib import Path
from typing import List

import pytest

import manyflow as mf

# Ends a test that hangs.
LIMIT_S = 60
HERE = "127.0.0.1:0"


def make_file(folder: Path, size: int) -> Path:
    path = folder / "image.bin"
    path.write_bytes(os.urandom(size))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def visible(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_file_arrives_as_it_was_sent(tmp_path: Path) -> None:
    path, into = make_file(tmp_path, 1_000_000), tmp_path / "into"
    seen: List[mf.live.ReceiveProgress] = []

    async def program() -> mf.live.Received:
        sender = mf.live.send(path, listen=HERE, publish=HERE, rate="100 Mbit/s", until_done=1, reports=HERE)
        async with sender:
            assert sender.url and sender.description.startswith("v=0")
            assert (sender.files, sender.bytes) == (1, 1_000_000)
            received = await mf.live.receive(sender.url, into=into, on_progress=seen.append)
            sent = await sender.wait()
            assert sent.receivers_done == 1
            assert sent.bytes > 1_000_000
            return received

    received = asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert [file.path for file in received.files] == [into / "image.bin"]
    assert received.bytes == received.files[0].bytes == 1_000_000
    assert received.goodput_bits_per_s == pytest.approx(8_000_000 / received.seconds)
    assert digest(into / "image.bin") == digest(path)
    assert seen and seen[-1].total_bytes >= 1_000_000


def test_a_description_is_taken_as_text_and_as_a_file(tmp_path: Path) -> None:
    path = make_file(tmp_path, 10_000)

    async def program() -> None:
        async with mf.live.send([path], listen=HERE) as sender:
            assert sender.url is None
            await mf.live.receive(sender.description, into=tmp_path / "text")
            (tmp_path / "image.sdp").write_text(sender.description)
            await mf.live.receive(tmp_path / "image.sdp", into=tmp_path / "file")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(tmp_path / "text/image.bin") == digest(tmp_path / "file/image.bin") == digest(path)


def test_a_cancelled_receiver_leaves_no_half_file_and_continues_later(tmp_path: Path) -> None:
    path, into = make_file(tmp_path, 1_500_000), tmp_path / "into"

    async def program() -> mf.live.Received:
        async with mf.live.send(path, listen=HERE, publish=HERE, rate="10 Mbit/s") as sender:
            assert sender.url
            has_begun = asyncio.Event()

            def look(progress: mf.live.ReceiveProgress) -> None:
                if progress.bytes > 0:
                    has_begun.set()

            receiving = asyncio.ensure_future(mf.live.receive(sender.url, into=into, on_progress=look))
            await has_begun.wait()
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            assert visible(into) == []
            # The folder is free again: the receiver has ended.
            return await mf.live.receive(sender.url, into=into)

    received = asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(into / "image.bin") == digest(path)
    assert received.goodput_bits_per_s < 8 * 1_500_000 / received.seconds


def test_a_cancelled_sender_stops(tmp_path: Path) -> None:
    path = make_file(tmp_path, 10_000)

    async def program() -> None:
        started: "asyncio.Future[mf.live.Sender]" = asyncio.get_running_loop().create_future()

        async def send() -> None:
            async with mf.live.send(path, listen=HERE, publish=HERE) as sender:
                started.set_result(sender)
                await sender.wait()

        sending = asyncio.ensure_future(send())
        sender = await started
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await sender.wait()
        assert sender.url
        with pytest.raises(mf.TransferError, match="cannot connect"):
            await mf.live.receive(sender.url, into=tmp_path / "into")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    async def program() -> None:
        async with mf.live.send(tmp_path / "none.iso", listen=HERE):
            raise AssertionError("it has started")

    with pytest.raises(mf.TransferError, match="no such file") as caught:
        asyncio.run(program())
    assert caught.value.subject == str(tmp_path / "none.iso")


def test_an_unreachable_description_is_named(tmp_path: Path) -> None:
    with socket.socket() as unused:
        # The port is bound, but nobody listens there.
        unused.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:{}/session.sdp".format(unused.getsockname()[1])
        with pytest.raises(mf.TransferError, match="127.0.0.1") as caught:
            asyncio.run(mf.live.receive(url, into=tmp_path))
    assert caught.value.subject == url
    with pytest.raises(mf.TransferError, match="none.sdp"):
        asyncio.run(mf.live.receive(tmp_path / "none.sdp", into=tmp_path))


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    path = make_file(tmp_path, 10)

    async def start(**options: object) -> None:
        async with mf.live.send(path, **options):  # type: ignore[arg-type]
            raise AssertionError("it has started")

    for options, name in [({"listen": "nowhere"}, "listen"), ({"listen": HERE, "rate": "fast"}, "rate")]:
        with pytest.raises(ValueError, match=name):
            asyncio.run(start(**options))
    with pytest.raises(mf.TransferError, match="no way to reach receivers"):
        asyncio.run(start())
    with pytest.raises(ValueError, match="group_key"):
        mf.live.send(path, listen=HERE, encrypt=True)


def test_an_error_of_on_progress_ends_the_call(tmp_path: Path) -> None:
    path = make_file(tmp_path, 500_000)

    def fail(progress: mf.live.ReceiveProgress) -> None:
        raise LookupError("no display")

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, publish=HERE, rate="5 Mbit/s") as sender:
            assert sender.url
            with pytest.raises(LookupError, match="no display"):
                await mf.live.receive(sender.url, into=tmp_path / "into", on_progress=fail)

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
