"""Measures the Python package on this machine.

    scripts/python python crates/manyflow-python/bench.py [--binary target/debug/manyflow]
    scripts/python python crates/manyflow-python/bench.py --square 316     # only a sweep of 316 x 316 cells

With --binary, the package's runs are compared with that program's. It has to be built with the package's profile:
`cargo build -p manyflow` for what scripts/python installs, `cargo build --release -p manyflow` after `pip install`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas  # noqa: F401  its import takes longer than the conversion

import manyflow as mf

SHORT = """
title = "A short cell"
run.duration = "10 s"
nodes.names = ["S", "R"]
[[links]]
between = ["S", "R"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "50 packets"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "S"
receivers = ["R"]
[[measure]]
name = "rate"
what = "received-rate"
of = "tcp"
"""


def million_rows() -> None:
    series = 'bin = "1 ms"\n[[plots]]\nname = "rates"\ntitle = "Rates"\nseries = [{ what = "received-rate", of = "tcp" }]\n'
    long = SHORT.replace('run.duration = "10 s"', 'run.duration = "1000 s"') + series.replace('bin = "1 ms"\n', "")
    results = mf.Scenario.load(long).with_({"run.bin": "1 ms", "links.rate": "0.1 Mbit/s"}).run(threads=1)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        frame = results.to_pandas()
        times.append(time.perf_counter() - begun)
    print(f"{len(frame):,} rows to pandas: {1e3 * min(times):.1f} ms (median {1e3 * statistics.median(times):.1f}; at most 50)")


def interrupt() -> None:
    program = (
        "import sys, manyflow, time\n"
        "scenario = manyflow.Scenario.load(sys.stdin.read()).with_({'run.duration': '100000000 s', 'run.bin': '100000 s'})\n"
        "try: scenario.run(threads=1, progress=True)\n"
        "except KeyboardInterrupt: print(time.time())\n"
    )
    waits = []
    for _ in range(5):
        command = [sys.executable, "-c", program]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdin and child.stdout and child.stderr
        child.stdin.write(SHORT)
        child.stdin.close()
        child.stderr.read(1)
        time.sleep(0.5)
        sent = time.time()
        child.send_signal(signal.SIGINT)
        waits.append(float(child.stdout.read()) - sent)
        child.wait()
    print(f"Ctrl-C to KeyboardInterrupt: at most {1e3 * max(waits):.0f} ms in {len(waits)} times (at most 200)")


def sweeps(cells: int) -> None:
    scenario = mf.Scenario.load(SHORT)
    axes = {"seed": range(cells)}
    begun = time.process_time()
    for seed in range(50):
        scenario.run([seed], threads=1)
    alone = (time.process_time() - begun) / 50
    times = {}
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            mf.sweep(scenario, {"seed": range(cells, cells + 4 * workers)}, folder, executor=pool)
            begun = time.perf_counter()
            mf.sweep(scenario, axes, folder, executor=pool)
            times[workers] = time.perf_counter() - begun
    print(f"{cells:,} cells: {times[1]:.2f} s on one worker, {times[2]:.2f} s on two: {times[1] / times[2]:.2f} times (at least 1.8)")
    print(f"overhead of a cell: {1e3 * (times[1] / cells - alone):.2f} ms beside {1e3 * alone:.2f} ms of simulation (at most 5)")


READER = """
import resource, sys, time
def memory(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
import manyflow, {library}
swept = manyflow.Sweep.open(sys.argv[1])
before, begun = memory(), time.perf_counter()
measures = swept.measures()
rows = {read}
print(f"{{rows:,}} rows to {library}: {{time.perf_counter() - begun:.2f}} s (at most 2), {{memory():.0f}} MB of memory (at most 300), {{before:.0f}} MB of them before")
"""


def square(side: int) -> None:
    """A sweep of many cells, each of which takes next to no time."""
    scenario = mf.Scenario.load(SHORT).with_({"run.duration": "0.1 s"})
    axes = {
        "links.rate": [f"{1000 + rate} kbit/s" for rate in range(side)],
        "links.delay": [f"{10 + delay} us" for delay in range(side)],
    }
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            swept = mf.sweep(scenario, axes, folder, executor=pool, progress=False)
        taken = time.perf_counter() - begun
        files = list(Path(folder).iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"{swept.made:,} cells in {taken:.0f} s: {len(files)} files (at most 64), {size / 1e6:.2f} MB (at most 20)")
        for library, read in [
            ("polars", "len(measures.to_polars())"),
            ("pandas", "len(measures.to_pandas())"),
            ("duckdb", "duckdb.sql('select count(cell) from measures').fetchall()[0][0]"),
        ]:
            subprocess.run([sys.executable, "-c", READER.format(library=library, read=read), folder], check=True)


def beside_binary(binary: str) -> None:
    settings = {"run.seeds": 4, "sweep.tcp_first": [0], "run.duration": "3000 s"}
    scenario = mf.Scenario.load("webrc-9").with_(settings)
    python, program = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "webrc-9.toml"
        path.write_text(scenario.text)
        arguments = [text for setting in scenario.settings for text in ("--set", setting)]
        command = [binary, "sim", str(path), "--threads", "1", "--out", f"{folder}/binary", *arguments]
        script = (
            "import sys, manyflow\n"
            f"scenario = manyflow.Scenario({str(path)!r}, open({str(path)!r}).read(), settings={list(scenario.settings)!r})\n"
            f"scenario.run(threads=1).write({folder + '/python'!r})\n"
        )
        for _ in range(3):
            # The CPU time of the children, because other programs may run on this machine.
            program.append(cpu(command))
            python.append(cpu([sys.executable, "-c", script]))
        same = (Path(folder) / "python/measures.csv").read_bytes() == (Path(folder) / "binary/webrc-9/measures.csv").read_bytes()
    more = min(python) / min(program) - 1
    print(f"a run from Python, with its start: {min(python):.2f} s of CPU beside {min(program):.2f} s: {more:+.1%} (at most +5 %)")
    print(f"measures.csv of both is {'the same' if same else 'DIFFERENT'}")


def cpu(command: list[str]) -> float:
    before = os.times()
    # The binary fails if expectations are missed, which does not matter here.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--square", type=int)
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if arguments.square:
        square(arguments.square)
        return
    million_rows()
    interrupt()
    sweeps(arguments.cells)
    if arguments.binary:
        beside_binary(arguments.binary)


if __name__ == "__main__":
    main()
