"""Files over WEBRC: one sender, many receivers, each at the rate of its own path."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, List, Optional, Sequence, Type, Union

from . import _native

StrPath = Union[str, "os.PathLike[str]"]

# Time in seconds that a cancelled role has to end. A disk or a silent relay can take longer; the role ends then in the
# background.
STOP_GRACE_S = 2.0


@dataclass(frozen=True)
class Sent:
    """What a sender has sent so far.

    Attributes:
        packets: The number of packets.
        bytes: The payload of these packets in bytes.
        gateways: The number of receivers that are connected to the sender's relay now.
        receivers_done: The number of receivers that have reported that they have all files.
    """

    packets: int
    bytes: int
    gateways: int
    receivers_done: int


@dataclass(frozen=True)
class Receiver:
    """A receiver that reports to the sender.

    Attributes:
        name: The name in the list, or the one that the receiver gives itself.
        expected: Whether the receiver is in the list.
        state: ``never-heard``, ``receiving``, ``silent``, ``done``, ``failed`` or ``left``.
        bytes: The bytes that the receiver had when it reported last.
        total_bytes: The bytes that it needs; 0 before it has the table of files.
    """

    name: str
    expected: bool
    state: str
    bytes: int
    total_bytes: int


@dataclass(frozen=True)
class ReceivedFile:
    """A file that is complete.

    Attributes:
        path: The path of the file.
        bytes: The length in bytes.
    """

    path: Path
    bytes: int


@dataclass(frozen=True)
class Received:
    """The result of :func:`manyflow.live.receive`.

    Attributes:
        files: The files, in the order of their completion.
        bytes: The length of all files in bytes.
        seconds: Time from the first join to the last file, in seconds.
        goodput_bits_per_s: The bits of the files that arrived in this time, divided by it. Bits that an earlier,
            interrupted receiver left in the folder do not count.
        loss: The fraction of lost packets, 0 to 1.
    """

    files: List[ReceivedFile]
    bytes: int
    seconds: float
    goodput_bits_per_s: float
    loss: float


@dataclass(frozen=True)
class ReceiveProgress:
    """The progress of a receiver.

    Attributes:
        bytes: The useful bytes that have arrived.
        total_bytes: The bytes that are needed; 0 before the table of files has arrived.
        files: The number of complete files.
        total_files: The number of files; 0 before the table of files has arrived.
        rate_bits_per_s: The present rate of reception in bits per second.
    """

    bytes: int
    total_bytes: int
    files: int
    total_files: int
    rate_bits_per_s: int


class Sender:
    """A session of files, made by :func:`manyflow.live.send`. ``async with`` starts it, and stops it at the end."""

    def __init__(self, start: Callable[[], "asyncio.Future[_native.FileSender]"]) -> None:
        self._start = start
        self._native: Optional[_native.FileSender] = None

    def _running(self) -> _native.FileSender:
        if self._native is None:
            raise RuntimeError("the sender has not started: use `async with manyflow.live.send(...) as sender`")
        return self._native

    @property
    def description(self) -> str:
        """The session description in SDP, which receivers need."""
        return self._running().text

    @property
    def url(self) -> Optional[str]:
        """The URL at which receivers find the description; ``None`` without ``publish``."""
        return self._running().url

    @property
    def files(self) -> int:
        """The number of files."""
        return self._running().files

    @property
    def bytes(self) -> int:
        """The length of all files in bytes."""
        return self._running().bytes

    @property
    def progress(self) -> Sent:
        """What was sent until now; it changes several times per second."""
        return Sent(*self._running().progress())

    @property
    def receivers(self) -> List[Receiver]:
        """The receivers that report: those of ``expect`` in the order of the list, then the others."""
        return [Receiver(*row) for row in self._running().receivers()]

    @property
    def missing(self) -> List[str]:
        """The names in the list of ``expect`` that have not reported that they have all files."""
        return [receiver.name for receiver in self.receivers if receiver.expected and receiver.state != "done"]

    async def wait(self) -> Sent:
        """Waits until the expected receivers have all files (``until_done``), or the time is over (``duration_s``).

        Without both, the session lasts until :meth:`stop` or the end of ``async with``. A wait that is cancelled does not
        stop the session.

        Raises:
            TransferError: If a file can no longer be read, or has changed.
        """
        return Sent(*await self._running().wait())

    async def stop(self) -> Sent:
        """Announces the end of the session to receivers (250 ms), and returns what was sent.

        Raises:
            TransferError: If a file could no longer be read, or had changed.
        """
        native = self._running()
        native.stop()
        return Sent(*await native.wait())

    async def __aenter__(self) -> Sender:
        self._native = await self._start()
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            await self.stop()
            return
        native = self._running()
        native.stop()
        await _end(asyncio.ensure_future(native.wait()))


async def _end(role: "asyncio.Future[Any]") -> None:
    """Waits for the end of a role that was asked to stop. Its result or error is dropped."""
    await asyncio.wait({role}, timeout=STOP_GRACE_S)
    if role.done() and not role.cancelled():
        role.exception()
    role.cancel()


def send(
    paths: Union[StrPath, Sequence[StrPath]],
    *,
    listen: Optional[str] = None,
    multicast: Optional[str] = None,
    interface: Optional[str] = None,
    hop_limit: int = 1,
    port: int = 5445,
    publish: Optional[str] = None,
    tls_cert: Optional[StrPath] = None,
    tls_key: Optional[StrPath] = None,
    rate: Optional[str] = None,
    profile: str = "lan",
    until_done: Optional[Union[int, str]] = None,
    expect: Optional[StrPath] = None,
    reports: str = "0.0.0.0:0",
    duration_s: Optional[float] = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    archive: bool = False,
    group_key: Optional[StrPath] = None,
    encrypt: bool = False,
    sign: Optional[StrPath] = None,
) -> Sender:
    """Sends files and folders, repeatedly, to any number of receivers, each at the rate that its path carries.

    ``async with manyflow.live.send(...) as sender`` reads the files for their digests, opens the sockets and starts.

    Args:
        paths: A file or folder, or several.
        listen: The address and UDP port of a relay for receivers without multicast, such as ``0.0.0.0:2268``. Port 0 is
            any free port. Without ``listen`` and ``multicast``, the relay is on all addresses, on port 2268 or any free one.
        multicast: The range of multicast groups, such as ``232.1.2.0/24``, or the first one of consecutive groups.
        interface: The name or address of the interface for multicast; by default that of the route.
        hop_limit: The maximum number of hops of multicast packets, 0 to 255. Packets with 1 do not leave the link.
        port: The UDP port of the multicast groups.
        publish: The address and TCP port at which the description is served over HTTP, such as ``0.0.0.0:8080``.
        tls_cert: A file with the certificate for HTTPS instead of HTTP, and those between it and its authority (PEM).
        tls_key: The file with the private key of the certificate (PEM).
        rate: The rate of all channels together, which no receiver can exceed: a number with bit/s, kbit/s, Mbit/s or Gbit/s.
            By default nine tenths of the interface's speed, or less on a machine that sends more slowly.
        profile: ``lan`` for local networks, ``wan`` for paths of 100 ms and more.
        until_done: The number of receivers after whose reports the session ends, 1 to 1,000,000; with ``expect``, of those
            listed, or ``"all"`` of them.
        expect: A file with the receivers that are expected: a name in each line, or a name and the public key of the receiver
            (or its file). They report how far they are, and why they failed: see :attr:`Sender.receivers`.
        reports: The address and UDP port for these reports.
        duration_s: Time in seconds after which the session ends.
        include: Globs of the files to send, as receivers see their paths; all files if empty.
        exclude: Globs of files and folders to leave out.
        archive: Whether receivers set modes and times of modification.
        group_key: A file with a key of 32 bytes in base64; receivers need it, too. Each packet gets a MAC.
        encrypt: Whether packets are encrypted with ``group_key``.
        sign: A file with the private key that signs the description (Ed25519, PKCS#8 in PEM).

    Raises:
        TransferError: At the start, if a file is missing or unreadable, or an address cannot be bound. ``subject`` names
            the file or the address.
        ValueError: At the start, if an address, the rate or another argument is invalid, or if ``until_done`` is above the
            number of receivers in ``expect``.
    """
    if encrypt and group_key is None:
        raise ValueError("encrypt needs group_key")
    if (tls_cert is None) != (tls_key is None) or (tls_cert is not None and publish is None):
        raise ValueError("HTTPS needs publish, tls_cert and tls_key")
    tls = None if tls_cert is None or tls_key is None else (os.fspath(tls_cert), os.fspath(tls_key))
    if not 0 <= hop_limit <= 255:
        raise ValueError("hop_limit: give 0 to 255")
    if not 0 <= port <= 65_535:
        raise ValueError("port: give 0 to 65535")
    listed = [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    if not listed:
        raise ValueError("paths: name at least one file or folder")

    async def start() -> _native.FileSender:
        return await _native.send(
            listed, listen, multicast, interface, hop_limit, port, publish, tls, rate, profile,
            None if until_done is None else str(until_done), _path(expect), reports, duration_s, list(include), list(exclude), archive, _path(group_key), encrypt, _path(sign),
        )  # fmt: skip

    return Sender(lambda: asyncio.ensure_future(start()))


def _path(path: Optional[StrPath]) -> Optional[str]:
    return None if path is None else os.fspath(path)


async def receive(
    session: StrPath,
    *,
    into: StrPath = ".",
    on_progress: Optional[Callable[[ReceiveProgress], object]] = None,
    overwrite: bool = False,
    relay: Optional[str] = None,
    interface: Optional[str] = None,
    max_rate: Optional[str] = None,
    patience_s: float = 30.0,
    group_key: Optional[StrPath] = None,
    trust: Sequence[StrPath] = (),
    ca: Optional[StrPath] = None,
    report: bool = True,
    name: Optional[str] = None,
    identity: Optional[StrPath] = None,
) -> Received:
    """Receives all files of a session, and returns when they are in the folder ``into``.

    A file appears under its name when it is complete and its digest is right. Incomplete files are in a hidden folder of
    ``into``; if the call is cancelled or fails, the next one with the same session and folder continues from there. A
    cancelled call stops the receiver before it returns, which takes up to two seconds.

    Args:
        session: The ``http://`` or ``https://`` URL of the description, the path of its file, or its text (``v=0...``).
        into: The folder for received files.
        on_progress: A function that is called about ten times per second. Its exceptions end the call.
        overwrite: Whether existing files with the names of received ones are replaced; otherwise they are kept, and the
            call fails at its end.
        relay: The host, or host and UDP port, of the relay to receive through, instead of the description's.
        interface: The name or address of the interface to receive multicast on.
        max_rate: The maximum rate to receive at, such as ``20 Mbit/s``.
        patience_s: Time in seconds without useful packets after which the call fails.
        group_key: The file with the session's group key.
        trust: Public keys of which one must have signed the description: each a file, or the text of the key
            (``ed25519:...``). Without any, descriptions need no signature; one that is wrong is refused all the same.
        ca: A file with the certificate authorities of ``https://`` URLs (PEM), instead of those that the platform trusts.
        report: Whether the receiver reports to the sender that it has all files, if the sender asks for it. The call then
            returns when the sender has answered: within two seconds for each receiver that the sender expects, three times
            that without answers.
        name: The name under which the receiver reports, 1 to 64 visible characters of ASCII; by default the name of the host.
        identity: The file with the private key that signs the reports (Ed25519, PKCS#8 in PEM), for a sender whose list has
            the public key.

    Raises:
        TransferError: If the description cannot be loaded or is not signed by a trusted key, nothing is heard of the session,
            a file cannot be stored, or the sender has ended the session. ``subject`` is the session as it was given.
        ValueError: If ``max_rate``, ``patience_s`` or ``name`` is invalid.
    """
    if not report and (name is not None or identity is not None):
        raise ValueError("name and identity need report=True")
    place, text = os.fspath(session), None
    if place.startswith("v=0"):
        place, text = "the description", place
    elif place == "-":
        place = "./-"
    folder = Path(into)
    native = _native.start_receiving(
        place, text, os.fspath(folder), overwrite, relay, interface, max_rate, patience_s, _path(group_key),
        [os.fspath(key) for key in trust], _path(ca), report, name, _path(identity),
    )  # fmt: skip
    end = asyncio.ensure_future(native.wait())
    watching = asyncio.ensure_future(_watch(native, on_progress))
    try:
        await asyncio.wait({end, watching}, return_when=asyncio.FIRST_EXCEPTION)
        if watching.done():
            watching.result()
        files, seconds, new_bytes, loss = await end
    finally:
        watching.cancel()
        native.stop()
        if not end.done():
            await _end(end)
    received = [ReceivedFile(folder / file, length) for file, length in files]
    goodput = new_bytes * 8 / seconds if seconds > 0 else 0.0
    return Received(received, sum(file.bytes for file in received), seconds, goodput, loss)


async def _watch(
    native: _native.FileReceiver, on_progress: Optional[Callable[[ReceiveProgress], object]]
) -> None:
    while on_progress is not None:
        progress = await native.next_progress()
        if progress is None:
            return
        on_progress(ReceiveProgress(*progress))
