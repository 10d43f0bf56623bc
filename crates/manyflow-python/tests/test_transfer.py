"""Files on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest
from conftest import PROGRAM

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
    with pytest.raises(mf.TransferError, match="nowhere"):
        asyncio.run(start(multicast="232.1.2.0/24", interface="nowhere"))
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


def keygen(*options: str) -> str:
    """Runs `manyflow keygen`, and returns what it prints."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built: run `cargo build -p manyflow`")
    done = subprocess.run([str(PROGRAM), "keygen", *options], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


@pytest.fixture
def signing(tmp_path: Path) -> Tuple[Path, Path]:
    """The files of a private key and of its public key."""
    key = tmp_path / "builder.key"
    keygen(str(key))
    return key, Path(f"{key}.pub")


def test_only_descriptions_of_trusted_signers_are_received(tmp_path: Path, signing: Tuple[Path, Path]) -> None:
    path, (key, public) = make_file(tmp_path, 10_000), signing
    other = tmp_path / "other.key"
    keygen(str(other))

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, publish=HERE, sign=key) as sender:
            assert sender.url
            for number, session in enumerate([sender.url, sender.description]):
                await mf.live.receive(session, into=tmp_path / f"into{number}", trust=[f"{other}.pub", public])
                with pytest.raises(mf.TransferError, match="is signed by ed25519:"):
                    await mf.live.receive(session, into=tmp_path / "none", trust=[f"{other}.pub"])
            changed = sender.description.replace("s=image.bin", "s=other.bin")
            assert changed != sender.description
            with pytest.raises(mf.TransferError, match="a line was changed"):
                await mf.live.receive(changed, into=tmp_path / "none")
        async with mf.live.send(path, listen=HERE) as sender:
            with pytest.raises(mf.TransferError, match="has no signature"):
                await mf.live.receive(sender.description, into=tmp_path / "none", trust=[public])

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(tmp_path / "into0/image.bin") == digest(tmp_path / "into1/image.bin") == digest(path)
    assert not (tmp_path / "none").exists()


def test_a_trusted_key_is_a_file_or_a_text(tmp_path: Path, signing: Tuple[Path, Path]) -> None:
    path, (key, _) = make_file(tmp_path, 1_000), signing

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, sign=key) as sender:
            with pytest.raises(mf.TransferError) as caught:
                await mf.live.receive(sender.description, into=tmp_path / "none", trust=["ed25519:" + "A" * 43 + "="])
            signer = caught.value.problem.split("is signed by ")[1].split(",")[0]
            await mf.live.receive(sender.description, into=tmp_path / "into", trust=[signer])
            for wrong in ["ed25519:none", str(tmp_path / "none.pub")]:
                with pytest.raises(mf.TransferError, match="none"):
                    await mf.live.receive(sender.description, into=tmp_path / "none", trust=[wrong])

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(tmp_path / "into/image.bin") == digest(path)


def test_a_sender_knows_its_receivers_by_name(tmp_path: Path, signing: Tuple[Path, Path]) -> None:
    path, (key, public), hosts = make_file(tmp_path, 100_000), signing, tmp_path / "hosts.txt"
    hosts.write_text(f"# a room\nlab-01\nlab-02 {public}\nlab-03\n")

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, publish=HERE, expect=hosts, until_done=2, reports=HERE) as sender:
            assert sender.url
            assert sender.missing == ["lab-01", "lab-02", "lab-03"]
            assert [receiver.state for receiver in sender.receivers] == ["never-heard"] * 3
            # Without its key, nobody has the second name.
            await asyncio.gather(
                mf.live.receive(sender.url, into=tmp_path / "one", name="lab-01"),
                mf.live.receive(sender.url, into=tmp_path / "liar", name="lab-02"),
            )
            assert sender.missing == ["lab-02", "lab-03"]
            await mf.live.receive(sender.url, into=tmp_path / "two", name="lab-02", identity=key)
            assert (await sender.wait()).receivers_done == 2
            assert sender.missing == ["lab-03"]
            done = sender.receivers[0]
            assert (done.name, done.expected, done.state) == ("lab-01", True, "done")
            assert done.bytes == done.total_bytes >= 100_000
            assert [(other.name, other.expected) for other in sender.receivers[3:]] == [("lab-02", False)]

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_sender_waits_for_all_in_its_list(tmp_path: Path) -> None:
    path, hosts = make_file(tmp_path, 10_000), tmp_path / "hosts.txt"
    hosts.write_text("one\ntwo\n")

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, expect=hosts, until_done="all", reports=HERE) as sender:
            names = ["one", "two"]
            await asyncio.gather(*(mf.live.receive(sender.description, into=tmp_path / name, name=name) for name in names))
            assert (await sender.wait()).receivers_done == 2
            assert sender.missing == []

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_wrong_audience_is_refused(tmp_path: Path) -> None:
    path, hosts = make_file(tmp_path, 10), tmp_path / "hosts.txt"
    hosts.write_text("one\n")

    async def start(**options: object) -> None:
        async with mf.live.send(path, listen=HERE, reports=HERE, **options):  # type: ignore[arg-type]
            raise AssertionError("it has started")

    for options, problem in [
        ({"until_done": "all"}, "add expect=FILE"),
        ({"until_done": 2, "expect": hosts}, "expect lists 1 receivers"),
        ({"until_done": 0}, "until_done"),
        ({"until_done": "many"}, "until_done"),
    ]:
        with pytest.raises(ValueError, match=problem):
            asyncio.run(start(**options))
    with pytest.raises(mf.TransferError, match="expect: .*none.txt"):
        asyncio.run(start(expect=tmp_path / "none.txt"))
    for wrong in [{"name": "two words"}, {"name": "one", "report": False}]:
        with pytest.raises(ValueError, match="name"):
            asyncio.run(mf.live.receive("v=0", into=tmp_path, **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_session_with_a_group_key_needs_the_key(tmp_path: Path, encrypt: bool) -> None:
    path, key, wrong = make_file(tmp_path, 50_000), tmp_path / "group.key", tmp_path / "wrong.key"
    keygen("--shared-key", str(key))
    keygen("--shared-key", str(wrong))

    async def program() -> None:
        options = {"until_done": 1, "reports": HERE}
        async with mf.live.send(path, listen=HERE, group_key=key, encrypt=encrypt, **options) as sender:  # type: ignore[arg-type]
            assert ("image.bin" in sender.description) != encrypt
            with pytest.raises(mf.TransferError):
                await mf.live.receive(sender.description, into=tmp_path / "wrong", group_key=wrong, patience_s=1.0)
            await mf.live.receive(sender.description, into=tmp_path / "into", group_key=key)
            assert (await sender.wait()).receivers_done == 1

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(tmp_path / "into/image.bin") == digest(path)
    assert visible(tmp_path / "wrong") == []


def test_a_file_without_a_group_key_is_named(tmp_path: Path) -> None:
    path = make_file(tmp_path, 10)

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, group_key=path):
            raise AssertionError("it has started")

    # The command that makes a key keeps its options.
    with pytest.raises(mf.TransferError, match="image.bin: .*`manyflow keygen --shared-key FILE`"):
        asyncio.run(program())


def test_a_description_is_received_over_https(tmp_path: Path) -> None:
    path, folder = make_file(tmp_path, 10_000), tmp_path / "certificates"
    keygen("--certificates", str(folder), "--daemon", "server=localhost")
    tls = {"tls_cert": folder / "server.crt", "tls_key": folder / "server.key"}

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, publish=HERE, **tls) as sender:  # type: ignore[arg-type]
            assert sender.url and sender.url.startswith("https://127.0.0.1:")
            url = sender.url.replace("127.0.0.1", "localhost")
            await mf.live.receive(url, into=tmp_path / "into", ca=folder / "ca.crt")
            with pytest.raises(mf.TransferError, match="ca=FILE"):
                await mf.live.receive(url, into=tmp_path / "none")
            with pytest.raises(mf.TransferError, match="none.crt"):
                await mf.live.receive(url, into=tmp_path / "none", ca=tmp_path / "none.crt")

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))
    assert digest(tmp_path / "into/image.bin") == digest(path)
    assert not (tmp_path / "none").exists()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path, none = make_file(tmp_path, 10), tmp_path / "none.crt"

    async def program() -> None:
        async with mf.live.send(path, listen=HERE, publish=HERE, tls_cert=none, tls_key=none):
            raise AssertionError("it has started")

    with pytest.raises(mf.TransferError, match="none.crt"):
        asyncio.run(program())
    with pytest.raises(ValueError, match="HTTPS needs"):
        mf.live.send(path, listen=HERE, publish=HERE, tls_cert=none)
    with pytest.raises(ValueError, match="HTTPS needs"):
        mf.live.send(path, listen=HERE, tls_cert=none, tls_key=none)


def test_a_range_of_groups_is_described(tmp_path: Path) -> None:
    path = make_file(tmp_path, 1_000)

    async def description(**options: object) -> str:
        async with mf.live.send(path, interface="127.0.0.1", **options) as sender:  # type: ignore[arg-type]
            return sender.description

    lines = asyncio.run(description(multicast="232.1.2.0/24", hop_limit=7, port=5777)).splitlines()
    assert any(line.startswith("c=IN IP4 232.1.2.0/7/") for line in lines), lines
    assert any(line.startswith("m=application 5777 ") for line in lines), lines
    with pytest.raises(mf.TransferError, match="more than the range has groups"):
        asyncio.run(description(multicast="232.1.2.0/30"))
    with pytest.raises(ValueError, match="multicast"):
        asyncio.run(description(multicast="10.1.2.0/24"))
    for wrong in [{"hop_limit": 256}, {"port": -1}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            asyncio.run(description(multicast="232.1.2.0/24", **wrong))
