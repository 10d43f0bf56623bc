"""Ctrl-C during runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import manyflow as mf

PROGRAM = """
import os, pickle, sys, time
import tqdm.auto
# The bar would have a thread of its own.
tqdm.auto.tqdm.monitor_interval = 0
scenario = pickle.load(sys.stdin.buffer)
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
try:
    scenario.run(threads=2, seeds=2, progress=True)
except KeyboardInterrupt:
    deadline = time.monotonic() + 30
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    print("interrupted", threads() - before)
"""


def test_an_interrupt_ends_the_runs_and_their_threads(endless: mf.Scenario) -> None:
    import pickle

    folder = Path(__file__).parent
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdin and child.stderr
    child.stdin.write(pickle.dumps(endless))
    child.stdin.close()
    # The bar appears when the runs begin.
    assert child.stderr.read(1)
    child.send_signal(signal.SIGINT)
    output = child.stdout.read() if child.stdout else b""
    child.stderr.read()
    assert child.wait(timeout=60) == 0
    assert output.split() == [b"interrupted", b"0"]
