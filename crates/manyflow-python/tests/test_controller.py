"""Congestion controls written in Python."""

from __future__ import annotations

import pickle

import pytest

import manyflow as mf

LINK = """\
title = "One TCP on a link"
run.duration = "20 s"
nodes.names = ["S", "R"]
[[links]]
name = "bottleneck"
between = ["S", "R"]
rate = "2 Mbit/s"
delay = "20 ms"
queue = "20 packets"
[[sessions]]
name = "own"
protocol = "tcp"
sender = "S"
receivers = ["R"]
[[measure]]
name = "rate"
what = "received-rate"
of = "own"
[[measure]]
name = "drops"
what = "drops"
of = "bottleneck"
"""


class Reno(mf.Controller):
    """RFC 5681, as manyflow's own sender does it."""

    def __init__(self) -> None:
        self.threshold = float("inf")

    def on_ack(self, moment: mf.Moment) -> None:
        self.window += 1 if self.window < self.threshold else 1 / self.window

    def on_loss(self, moment: mf.Moment) -> None:
        self.window = self.threshold = max(2.0, self.window / 2)

    def on_timeout(self, moment: mf.Moment) -> None:
        self.threshold, self.window = max(2.0, self.window / 2), 1.0


class Paced:
    """Half of the link, whatever happens."""

    window = 1000.0
    rate = 1e6

    def on_ack(self, moment: mf.Moment) -> None:
        assert moment.acknowledged >= 1 and moment.segment_bytes == 1000 and moment.in_flight < 30
        assert moment.rtt_sample_s == 0 or 0.04 < moment.rtt_sample_s < 0.06

    on_loss = on_timeout = on_ack


class Broken(mf.Controller):
    def on_ack(self, moment: mf.Moment) -> None:
        if moment.now_s > 5:
            raise LookupError("on purpose")


@pytest.fixture
def link() -> mf.Scenario:
    return mf.Scenario.load(LINK)


def measures(scenario: mf.Scenario) -> dict[str, float]:
    (row,) = scenario.run(threads=1).measures().to_arrow().to_pylist()
    return row


def test_a_controller_in_python_gets_the_link(link: mf.Scenario) -> None:
    own, built_in = measures(link.with_controller("own", Reno)), measures(link)
    assert own["rate"] == pytest.approx(built_in["rate"], rel=0.05)
    assert own["rate"] > 1.8e6 and own["drops"] > 0


def test_a_rate_spaces_segments(link: mf.Scenario) -> None:
    row = measures(link.with_controller("own", Paced))
    assert row["rate"] == pytest.approx(1e6, rel=0.01) and row["drops"] == 0


def test_each_connection_of_each_run_has_an_object(link: mf.Scenario) -> None:
    made: list[Reno] = []

    def make() -> Reno:
        made.append(Reno())
        return made[-1]

    tables = [link.with_controller("own", make).run(seeds=3, threads=threads).measures().to_arrow() for threads in (1, 2)]
    assert tables[0] == tables[1] and len(made) == 6


def test_an_exception_stops_the_runs_and_is_raised(link: mf.Scenario) -> None:
    with pytest.raises(LookupError, match="on purpose") as caught:
        link.with_controller("own", Broken).run(seeds=4, threads=2)
    assert caught.traceback[-1].name == "on_ack"
    with pytest.raises(TypeError):
        link.with_controller("own", lambda: 1 / None).run()  # type: ignore[operator]
    with pytest.raises(AttributeError, match="window"):
        link.with_controller("own", object).run()  # type: ignore[arg-type]


def test_a_session_or_a_controller_that_does_not_exist_is_refused(link: mf.Scenario) -> None:
    with pytest.raises(mf.ScenarioError, match="no entry `other`"):
        link.with_controller("other", Reno)
    with pytest.raises(mf.RunError, match="no control of a program `reno`"):
        link.with_({"sessions.own.tcp.control": "reno"}).run()


def test_a_session_that_is_not_of_tcp_is_refused(link: mf.Scenario) -> None:
    other = mf.Scenario(link.file, link.text.replace('protocol = "tcp"', 'protocol = "cbr"\ncbr.rate = "1 Mbit/s"'))
    with pytest.raises(mf.ScenarioError, match="`sessions.own.tcp`: a session of cbr does not read this key"):
        other.with_controller("own", Reno)


def test_a_fingerprint_depends_on_the_source_of_the_controller(link: mf.Scenario) -> None:
    first, second = link.with_controller("own", Reno), link.with_controller("own", Paced)
    assert len({link.fingerprint, first.fingerprint, second.fingerprint}) == 3
    assert pickle.loads(pickle.dumps(first)).fingerprint == first.fingerprint
