"""The part of the package that is written in Rust. Programs use the classes of ``manyflow`` instead."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, final

__all__ = [
    "__version__",
    "builtin_names",
    "builtin_text",
    "connect",
    "evaluation_texts",
    "evaluation_verdicts",
    "FileReceiver",
    "FileSender",
    "LiveClient",
    "LiveMember",
    "LiveMessages",
    "Message",
    "Moment",
    "Results",
    "Rows",
    "Scenario",
    "send",
    "start_receiving",
    "SweepStore",
    "Table",
]

__version__: str

def builtin_names() -> list[str]: ...
def builtin_text(id: str) -> str | None: ...
def evaluation_texts(name: str, is_control: bool, fast: bool) -> list[tuple[str, str]]: ...
def evaluation_verdicts(
    name: str, is_control: bool, results: list[Results], folder: str | os.PathLike[str] | None = None
) -> str: ...
def connect(
    address: str,
    name: str | None,
    timeout_s: float,
    buffer_messages: int,
    tls: bool,
    ca: str | os.PathLike[str] | None,
    user: tuple[str, str] | None,
    echo: bool,
) -> Awaitable[LiveClient]: ...
@final
class LiveClient:
    @property
    def address(self) -> str: ...
    def publish(self, subject: str, payload: bytes) -> Awaitable[None]: ...
    def publish_layers(self, subject: str, layers: list[tuple[bytes, int]], purse_s: float) -> Awaitable[None]: ...
    def join(self, pattern: str, queue: str | None) -> Awaitable[LiveMessages]: ...
    def multicast(self, service: str, groups: list[str], payload: bytes) -> Awaitable[None]: ...
    def member(self) -> LiveMember: ...
    def flush(self) -> Awaitable[None]: ...
    def drain(self) -> Awaitable[None]: ...

@final
class LiveMessages:
    def next(self) -> Awaitable[Message | None]: ...
    def leave(self) -> Awaitable[None]: ...

@final
class LiveMember:
    def join(self, group: str) -> Awaitable[None]: ...
    def leave(self, group: str) -> Awaitable[None]: ...
    def next(
        self,
    ) -> Awaitable[
        tuple[Literal["message"], str, str, list[str], bytes]
        | tuple[Literal["view"], str, str, tuple[list[str], list[str], str], str, str | None]
        | tuple[Literal["transitional"], str]
        | None
    ]: ...
    def close(self) -> Awaitable[None]: ...

def send(
    paths: list[str],
    listen: str | None,
    multicast: str | None,
    interface: str | None,
    hop_limit: int,
    port: int,
    publish: str | None,
    tls: tuple[str, str] | None,
    rate: str | None,
    profile: str,
    until_done: str | None,
    expect: str | None,
    reports: str,
    duration_s: float | None,
    include: list[str],
    exclude: list[str],
    archive: bool,
    group_key: str | None,
    encrypt: bool,
    sign: str | None,
) -> Awaitable[FileSender]: ...
def start_receiving(
    session: str,
    text: str | None,
    into: str,
    overwrite: bool,
    relay: str | None,
    interface: str | None,
    max_rate: str | None,
    patience_s: float,
    group_key: str | None,
    trust: list[str],
    ca: str | None,
    report: bool,
    name: str | None,
    identity: str | None,
) -> FileReceiver: ...
@final
class FileSender:
    @property
    def text(self) -> str: ...
    @property
    def url(self) -> str | None: ...
    @property
    def files(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def progress(self) -> tuple[int, int, int, int]: ...
    def receivers(self) -> list[tuple[str, bool, str, int, int]]: ...
    def stop(self) -> None: ...
    def wait(self) -> Awaitable[tuple[int, int, int, int]]: ...

@final
class FileReceiver:
    def next_progress(self) -> Awaitable[tuple[int, int, int, int, int] | None]: ...
    def stop(self) -> None: ...
    def wait(self) -> Awaitable[tuple[list[tuple[str, int]], float, int, float]]: ...

@final
class Message:
    """A message of a group."""

    @property
    def subject(self) -> str:
        """The subject that the message was published to."""
    @property
    def reply(self) -> str | None:
        """The subject that the sender expects answers at, or ``None``."""
    @property
    def payload(self) -> bytes:
        """The bytes that the sender published, or, of a message in layers, a prefix of them."""
    @property
    def headers(self) -> list[tuple[str, str]]:
        """The names and values of the headers, in the sender's order."""
    @property
    def whole_bytes(self) -> int | None:
        """The number of bytes that the sender published in layers, or ``None`` for a message without layers."""
    @property
    def layers(self) -> list[bytes] | None:
        """The layers that have arrived, in their order, or ``None`` for a message without layers."""

@final
class Scenario:
    def __new__(
        cls,
        file: str,
        text: str,
        fast: bool = False,
        settings: list[str] = ...,
        cell: int | None = None,
        traces: dict[str, str] = ...,
    ) -> Scenario: ...
    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def cells(self) -> int: ...
    @property
    def axes(self) -> list[tuple[str, list[str]]]: ...
    @property
    def traces(self) -> list[tuple[str, str]]: ...
    @property
    def fingerprint(self) -> str: ...
    def labels(self, cell: int) -> list[str]: ...
    def seeds(self) -> list[int]: ...
    def duration_s(self, cell: int) -> float: ...
    def run(
        self,
        jobs: list[tuple[int, int]],
        threads: int,
        progress: Callable[[float, int], object] | None = None,
        controls: Mapping[str, Callable[[], object]] | None = None,
    ) -> Results: ...
    def restore(self, outcomes: str) -> Results: ...

@final
class Moment:
    """The state of a connection when its control is called."""

    @property
    def now_s(self) -> float:
        """The simulated time in seconds."""
    @property
    def acknowledged(self) -> int:
        """The number of segments that the acknowledgement covers for the first time; 0 for losses and time-outs."""
    @property
    def segment_bytes(self) -> int:
        """The payload of a segment in bytes."""
    @property
    def in_flight(self) -> int:
        """The number of segments that are assumed to be in the network."""
    @property
    def rtt_s(self) -> float:
        """The smoothed round-trip time in seconds (RFC 6298); 0 before the first sample."""
    @property
    def rtt_sample_s(self) -> float:
        """The latest sample of the round-trip time in seconds; 0 before the first."""
    @property
    def is_mark(self) -> bool:
        """Whether a router's mark stands for the loss (RFC 3168)."""

@final
class Results:
    def raise_failure(self) -> None: ...
    def outcomes(self) -> str: ...
    def lines(self) -> list[str]: ...
    def summary_json(self) -> str: ...
    def series(self) -> Table: ...
    def measures(self) -> Table: ...
    def figures(self) -> list[tuple[str, str, str]]: ...
    def write(self, folder: str | os.PathLike[str]) -> None: ...
    @property
    def transmissions(self) -> int: ...

@final
class Table:
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Rows:
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class SweepStore:
    def __new__(cls, folder: str | os.PathLike[str], scenario: Scenario, fingerprint: str) -> SweepStore: ...
    def known(self) -> set[tuple[int, int]]: ...
    def left_out(self) -> list[str]: ...
    def add(self, results: Results) -> None: ...
    def flush(self) -> None: ...
    def compact(self) -> list[Path]: ...
    def measures(self, files: Sequence[str | os.PathLike[str]], seeds: set[int]) -> Rows: ...
    def series(self, files: Sequence[str | os.PathLike[str]], seeds: set[int]) -> Rows: ...
