"""Members of ordered groups at a real daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from test_live import LIMIT_S, running_daemon

import manyflow as mf

SERVICES = ["unreliable", "reliable", "fifo", "causal", "agreed", "safe"]


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a daemon that runs during the test."""
    with running_daemon("--name", "a", "--clients", "127.0.0.1:0", "--insecure", "--grace", "0s") as address:
        yield address


async def next_view(member: mf.live.Member, members: int) -> mf.live.View:
    async for event in member:
        if isinstance(event, mf.live.View) and len(event.members) == members:
            return event
    raise AssertionError("the groups have ended")


async def next_message(member: mf.live.Member) -> mf.live.OrderedMessage:
    async for event in member:
        if isinstance(event, mf.live.OrderedMessage):
            return event
    raise AssertionError("the groups have ended")


def test_messages_of_each_service_arrive_once_and_in_order(address: str) -> None:
    async def program() -> None:
        async with await mf.live.connect(address) as ann, await mf.live.connect(address) as bob:
            async with ann.member("orders") as of_ann, bob.member("orders", "stock") as of_bob:
                own = (await next_view(of_ann, 2)).own_name
                for service in SERVICES:
                    await ann.multicast(["stock", "orders"], service.encode(), service=service)
                for service in SERVICES:
                    for member in (of_ann, of_bob):
                        message = await next_message(member)
                        assert (message.service, message.payload) == (service, service.encode())
                        assert message.sender == own
                        assert sorted(message.groups) == ["orders", "stock"]

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_views_say_who_has_joined_left_and_disconnected(address: str) -> None:
    async def program() -> None:
        async with await mf.live.connect(address) as ann, ann.member("orders") as member:
            first = await next_view(member, 1)
            assert (first.cause, first.who, first.members) == ("join", first.own_name, (first.own_name,))
            bob = await mf.live.connect(address)
            async with bob.member("orders") as other:
                name = (await next_view(other, 2)).own_name
                joined = await next_view(member, 2)
                assert (joined.cause, joined.who, joined.stayed) == ("join", name, (first.own_name,))
                await other.leave("orders")
                left = await next_view(member, 1)
                assert (left.cause, left.who) == ("leave", name)
                with pytest.raises(mf.LiveError, match="orders"):
                    await other.leave("orders")
            await bob.close()

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_a_client_without_echo_gets_only_messages_of_others(address: str) -> None:
    async def program() -> bytes:
        async with await mf.live.connect(address, echo=False) as ann, await mf.live.connect(address) as bob:
            async with ann.member("orders") as member, bob.member("orders") as other:
                await ann.multicast("orders", b"own")
                assert (await next_message(other)).payload == b"own"
                await bob.multicast("orders", b"other")
                return (await next_message(member)).payload

    assert asyncio.run(asyncio.wait_for(program(), LIMIT_S)) == b"other"


def test_a_group_is_joined_while_another_task_waits(address: str) -> None:
    async def program() -> bytes:
        async with await mf.live.connect(address) as client, client.member("orders") as member:
            waiting = asyncio.ensure_future(next_message(member))
            await client.flush()
            await member.join("stock")
            await client.multicast("stock", b"17")
            return (await waiting).payload

    assert asyncio.run(asyncio.wait_for(program(), LIMIT_S)) == b"17"


def test_mistakes_are_errors_that_say_why(address: str) -> None:
    async def program() -> None:
        async with await mf.live.connect(address) as client:
            with pytest.raises(ValueError, match="best"):
                await client.multicast("orders", b"", service="best")
            with pytest.raises(mf.LiveError, match="two words"):
                await client.multicast("two words", b"")
            with pytest.raises(mf.LiveError, match="not 0"):
                await client.multicast([], b"")
            async with client.member("orders"):
                with pytest.raises(mf.LiveError, match=address):
                    await client.member("stock").__aenter__()

    asyncio.run(asyncio.wait_for(program(), LIMIT_S))


def test_the_example_of_the_manual_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    from test_documents import LIVE, blocks

    found = [block for block in blocks("docs/order.md") if LIVE in block]
    assert len(found) == 1
    exec(compile(found[0].replace(LIVE, address), "docs/order.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("members: ")
    assert printed[1].startswith("safe from #nats-")
    assert printed[1].endswith(": b'17 chairs'")
