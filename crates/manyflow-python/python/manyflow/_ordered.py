"""Members of ordered groups, and what they get."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Optional, Tuple, Type, Union

from . import _native


@dataclass(frozen=True)
class OrderedMessage:
    """A message of ordered groups."""

    service: str
    """The service that the sender chose: ``unreliable``, ``reliable``, ``fifo``, ``causal``, ``agreed`` or ``safe``."""
    sender: str
    """The name of the sender, which need not be a member."""
    groups: Tuple[str, ...]
    """The groups that the message is for. The first is one that the member has joined, or the member's own name."""
    payload: bytes
    """The bytes that the sender sent."""


@dataclass(frozen=True)
class View:
    """A view of a group: its members from now on, and why they have changed."""

    group: str
    """The group."""
    id: str
    """The number of the view, which is the same at all of its members."""
    members: Tuple[str, ...]
    """The names of all members, in the same order at all of them."""
    cause: str
    """Why the members have changed: ``join``, ``leave``, ``disconnect`` or ``network``."""
    who: Optional[str]
    """The member that has joined, left or disconnected; ``None`` if the network has changed."""
    stayed: Tuple[str, ...]
    """The members that have come with this one from the same view, with the same messages: the transitional set."""
    own_name: str
    """The name of the member that gets this view."""


@dataclass(frozen=True)
class Transitional:
    """The transitional signal: until the next view of the group, other members may miss messages.

    The promises then hold among the members that stay together (``View.stayed``).
    """

    group: str
    """The group."""


Event = Union[OrderedMessage, View, Transitional]


class Member:
    """The messages and views of ordered groups, in one order, made by :meth:`Client.member`.

    ``async with`` joins the groups at its beginning and leaves them at its end; ``async for`` alone joins them when it
    asks for the first event. A client has one member at a time.
    """

    def __init__(self, client: _native.LiveClient, groups: Tuple[str, ...]) -> None:
        self._client = client
        self._groups = groups
        self._native: Optional[_native.LiveMember] = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a member belongs to its process: connect in the other one")

    async def _begin(self) -> _native.LiveMember:
        if self._native is None:
            native = self._native = self._client.member()
            for group in self._groups:
                await native.join(group)
        return self._native

    async def join(self, group: str) -> None:
        """Joins another group, and returns when the daemon has accepted the request.

        Raises:
            LiveError: If the name is invalid, the daemon refuses the request, or the connection has ended.
        """
        await (await self._begin()).join(group)

    async def leave(self, group: str) -> None:
        """Leaves a group, and returns when the daemon knows. Events that have arrived before can still follow.

        Raises:
            LiveError: If the member has not joined the group, or the connection has ended.
        """
        await (await self._begin()).leave(group)

    async def close(self) -> None:
        """Leaves all groups."""
        if self._native is not None:
            await self._native.close()

    def __aiter__(self) -> Member:
        return self

    async def __anext__(self) -> Event:
        """Waits for the next event.

        Raises:
            LiveError: If the connection was lost, or the daemon has removed a slow member: later messages were missed.
        """
        event = await (await self._begin()).next()
        if event is None:
            raise StopAsyncIteration
        if event[0] == "message":
            _, service, sender, groups, payload = event
            return OrderedMessage(service, sender, tuple(groups), payload)
        if event[0] == "view":
            _, group, id, (members, stayed, own_name), cause, who = event
            return View(group, id, tuple(members), cause, who, tuple(stayed), own_name)
        return Transitional(event[1])

    async def __aenter__(self) -> Member:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()
