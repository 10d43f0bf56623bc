"""What the tests share: a small scenario, and one that never ends by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

import manyflow as mf

REPOSITORY = Path(__file__).resolve().parents[3]
# The binary of cargo, which starts daemons and makes keys.
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / "manyflow"

SMALL = """\
title = "A constant bit rate over one link"
run = { duration = "10 s", seeds = 2 }
nodes.names = ["S", "R"]
[[links]]
name = "bottleneck"
between = ["S", "R"]
rate = "2 Mbit/s"
delay = "20 ms"
[[sessions]]
name = "cbr"
protocol = "cbr"
sender = "S"
receivers = ["R"]
cbr.rate = "1 Mbit/s"
[[measure]]
name = "rate"
what = "received-rate"
of = "cbr"
[[plots]]
name = "rates"
title = "Rates"
series = [{ what = "received-rate", of = "cbr" }]
[[expect]]
what = "the link carries the whole rate"
value = "mean(rate)"
at-least = "0.99 Mbit/s"
source = "the rate of the source"
"""


def toml_tables(text: str) -> Dict[str, Any]:
    """The tables of a text in TOML. The standard library can read them from Python 3.11 on."""
    toml = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    tables: Dict[str, Any] = toml.loads(text)
    return tables


@pytest.fixture
def small() -> mf.Scenario:
    return mf.Scenario.load(SMALL)


@pytest.fixture
def endless(small: mf.Scenario) -> mf.Scenario:
    """A run of some hours of computing."""
    return small.with_({"run.duration": "100000000 s", "run.seeds": 1, "run.bin": "100000 s"})
