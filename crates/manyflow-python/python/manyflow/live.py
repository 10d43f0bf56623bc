"""Live roles: files to many receivers, and clients of an overlay.

:func:`send` and :func:`receive` transfer files. A client publishes messages to groups, and subscribes to groups. It speaks with one running daemon (``manyflow daemon``). It drops no message: if a program reads too slowly, the
client reads nothing more from its daemon, which then applies the group's policy for slow members.

Threads and event loops of one process share clients and transfers. A process that was forked after its parent has used
this module gets a :class:`RuntimeError` from each call: start processes with the method "spawn" of multiprocessing.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import NoReturn, Optional, Sequence, Tuple, Type, Union

from . import _native
from ._native import Message
from ._ordered import Member, OrderedMessage, Transitional, View
from ._transfer import Received, ReceivedFile, ReceiveProgress, Receiver, Sender, Sent, receive, send

__all__ = [
    "Client",
    "Member",
    "Message",
    "OrderedMessage",
    "ReceiveProgress",
    "Received",
    "ReceivedFile",
    "Receiver",
    "Sender",
    "Sent",
    "Subscription",
    "Transitional",
    "View",
    "connect",
    "receive",
    "send",
]


async def connect(
    address: str,
    *,
    name: Optional[str] = None,
    timeout_s: float = 5.0,
    buffer_messages: int = 256,
    tls: Union[bool, str, os.PathLike[str]] = False,
    user: Optional[str] = None,
    password: Optional[str] = None,
    echo: bool = True,
) -> Client:
    """Connects to the daemon at ``address``, a host and a port such as ``127.0.0.1:4222``.

    Args:
        address: The host and port at which the daemon serves clients (``--clients``).
        name: A name for the daemon's log.
        timeout_s: Time in seconds for the daemon to accept the client.
        buffer_messages: The number of messages that each subscription buffers, at least 1.
        tls: ``True`` connects over TLS, to a daemon with a certificate of an authority that the platform trusts; a path
            connects over TLS, too, and names a PEM file with the authorities to trust instead. The certificate has to
            name the host in ``address``. ``False`` connects without TLS.
        user: The name of a user of the daemon, with ``password``.
        password: The user's password. Without TLS, the network carries it in plain text.
        echo: Whether the client's groups receive its own messages, too.

    Raises:
        LiveError: If the daemon cannot be reached, refuses the client, or does not answer in time; if only one of both
            requires TLS; if the file of authorities cannot be read.
        ValueError: If ``timeout_s`` is negative or not finite, or only one of ``user`` and ``password`` is given.
    """
    if user is not None and password is not None:
        credentials: Optional[Tuple[str, str]] = (user, password)
    elif user is None and password is None:
        credentials = None
    else:
        raise ValueError("user and password belong together: give both or neither")
    authorities = None if isinstance(tls, bool) else os.fspath(tls)
    secure = tls if isinstance(tls, bool) else True
    return Client(
        await _native.connect(address, name, timeout_s, buffer_messages, secure, authorities, credentials, echo)
    )


class Client:
    """A client of a daemon, made by :func:`connect`. ``async with`` closes it at the end."""

    def __init__(self, native: _native.LiveClient) -> None:
        self._native = native

    @property
    def address(self) -> str:
        """The address that the client has connected to."""
        return self._native.address

    async def publish(self, subject: str, payload: bytes) -> None:
        """Publishes to the members of a group. Waits while the network is full.

        Raises:
            LiveError: If the subject is invalid, the message too long, or the connection has ended.
        """
        await self._native.publish(subject, payload)

    async def publish_layers(self, subject: str, layers: Sequence[Tuple[bytes, int]], *, purse_s: float) -> None:
        """Publishes a message in layers, of which each link between daemons carries as many as its price allows.

        The members get the first of these layers, in :attr:`Message.layers`. No member slows the others down.

        Args:
            subject: The group.
            layers: One to eight layers, each with its worth in relation to the others. No byte may be worth more than
                one of the layers before.
            purse_s: The salary that the message brings: the time in seconds to the next message of the stream. A client
                that publishes more often waits.

        Raises:
            LiveError: If the subject or the layers are invalid, the message is longer than 48 KiB, or the connection
                has ended.
            ValueError: If ``purse_s`` is negative or not finite, or a layer is longer than 65,535 bytes.
        """
        await self._native.publish_layers(subject, list(layers), purse_s)

    def subscribe(self, pattern: str, *, queue: Optional[str] = None) -> Subscription:
        """Returns the messages whose subjects fit ``pattern``, for ``async for`` and ``async with``.

        Args:
            pattern: A subject, or words between dots of which each may be ``*``, and the last ``>``.
            queue: The workers of a queue share the messages: each message goes to one of them.
        """
        return Subscription(self._native, pattern, queue)

    async def multicast(self, groups: Union[str, Sequence[str]], payload: bytes, *, service: str = "agreed") -> None:
        """Sends a message to the members of ordered groups, which get it once. Waits while the network is full.

        Args:
            groups: The groups, or one of them. The name of a client stands for that client alone.
            payload: The bytes to send.
            service: The promise: ``unreliable``, ``reliable``, ``fifo``, ``causal``, ``agreed`` or ``safe``.

        Raises:
            LiveError: If a group is invalid, there are none or more than 255, the message is too long, or the
                connection has ended.
            ValueError: If there is no such service.
        """
        await self._native.multicast(service, [groups] if isinstance(groups, str) else list(groups), payload)

    def member(self, *groups: str) -> Member:
        """Returns the messages and views of ordered groups, for ``async for`` and ``async with``."""
        return Member(self._native, groups)

    async def flush(self) -> None:
        """Returns when the daemon has taken everything that was published before.

        Raises:
            LiveError: If the connection has ended.
        """
        await self._native.flush()

    async def close(self) -> None:
        """Leaves all groups, returns when the daemon has taken everything that was published, and ends the connection.

        Subscriptions yield what has arrived, and end.

        Raises:
            LiveError: If the connection was lost before.
        """
        await self._native.drain()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client belongs to its process: connect in the other one")

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()


class Subscription:
    """The messages of the groups that fit a pattern, in the order of each sender.

    ``async with`` joins the groups at its beginning and leaves them at its end; ``async for`` alone joins them when it
    asks for the first message. Messages that were published before are not received. A wait that is cancelled can
    lose a message that arrives at the same moment.
    """

    def __init__(self, client: _native.LiveClient, pattern: str, queue: Optional[str]) -> None:
        self._client = client
        self._pattern = pattern
        self._queue = queue
        self._messages: Optional[_native.LiveMessages] = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a subscription belongs to its process: connect in the other one")

    async def _join(self) -> _native.LiveMessages:
        if self._messages is None:
            self._messages = await self._client.join(self._pattern, self._queue)
        return self._messages

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        """Waits for the next message.

        Raises:
            LiveError: If the pattern is invalid or refused, or if the connection was lost: later messages were missed.
        """
        message = await (await self._join()).next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def leave(self) -> None:
        """Leaves the groups, and returns when the daemon knows. Messages that have arrived are dropped.

        Raises:
            LiveError: If the connection was lost before.
        """
        if self._messages is not None:
            await self._messages.leave()

    async def __aenter__(self) -> Subscription:
        await self._join()
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.leave()
