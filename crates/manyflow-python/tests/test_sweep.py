"""Sweeps over threads, processes and Dask, and their rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pyarrow.parquet
import pytest
from conftest import PROGRAM

import manyflow as mf

AXES = {"links.rate": ["0.5 Mbit/s", "2 Mbit/s"], "seed": range(3)}
# Workers do not inherit the threads of this process.
processes = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_sweep_writes_a_row_for_each_run(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, tmp_path, executor=ThreadPoolExecutor(2))
    fingerprint = sweep.scenario.fingerprint
    assert set(contents(tmp_path)) == {f"rows-{fingerprint[:16]}-6-00.parquet", f"scenario-{fingerprint[:16]}.json"}
    table = pyarrow.parquet.read_table(sweep.files[0])
    assert table.schema.names[:5] == ["cell", "links.rate", "seed", "rate", "verdict: the link carries the whole rate"]
    assert table.schema.field("rate").metadata[b"unit"] == b"bit/s"
    assert pyarrow.parquet.read_metadata(sweep.files[0]).metadata[b"manyflow.fingerprint"].decode() == fingerprint
    row = table.to_pylist()[4]
    assert [row[name] for name in ("cell", "links.rate", "seed")] == [1, "2 Mbit/s", 1]
    assert row["rate"] == pytest.approx(1e6, rel=0.01) and row["verdict: the link carries the whole rate"] == "met"
    assert table.to_pylist()[0]["verdict: the link carries the whole rate"] == "missed"
    (line,) = row["run.series"]
    assert (line["plot"], line["observable"], line["subject"], line["time_s"][-1]) == ("rates", "received-rate", "cbr/R", 10.0)
    assert row["run.failure"] is None and row["run.receivers"] == 1


def test_other_programs_read_the_rows(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, tmp_path)
    assert sweep.dataset().count_rows() == 6
    assert polars.scan_parquet(f"{tmp_path}/*.parquet").collect()["cell"].to_list() == [0, 0, 0, 1, 1, 1]
    assert polars.DataFrame(sweep.measures())["seed"].to_list() == [0, 1, 2, 0, 1, 2]
    duckdb = pytest.importorskip("duckdb")
    measures = sweep.measures()
    assert duckdb.sql("select cell, count(rate) from measures group by cell order by cell").fetchall() == [(0, 3), (1, 3)]
    points = f"from (select cell, unnest(\"run.series\") as line from '{tmp_path}/*.parquet') select cell, max(len(line.time_s)) group by all order by cell"
    assert duckdb.sql(points).fetchall() == [(0, 10), (1, 10)]
    assert len(measures) == 6


def test_measures_and_series_have_the_seeds_of_the_call(small: mf.Scenario, tmp_path: Path) -> None:
    mf.sweep(small, {**AXES, "seed": range(5)}, tmp_path)
    sweep = mf.sweep(small, AXES, tmp_path)
    frame = sweep.measures().to_pandas()
    assert list(frame.columns[:4]) == ["cell", "links.rate", "seed", "rate"] and len(frame) == 6
    assert frame["rate"].tolist()[:3] == pytest.approx([0.5e6] * 3, rel=0.01)
    points = sweep.series().to_pandas()
    assert len(points) == 60 and set(points["seed"]) == {0, 1, 2}
    run = small.with_({"links.rate": "2 Mbit/s"}).run([1]).to_pandas()
    of_run = points[(points["cell"] == 1) & (points["seed"] == 1)]
    assert list(points.columns) == list(run.columns) and of_run["value"].tolist() == run["value"].tolist()


def test_runs_that_are_there_are_not_made_again(small: mf.Scenario, tmp_path: Path) -> None:
    first = mf.sweep(small, AXES, tmp_path)
    before = contents(tmp_path)
    again = mf.sweep(small, AXES, tmp_path)
    assert contents(tmp_path) == before
    more = mf.sweep(small, {**AXES, "seed": range(5)}, tmp_path)
    assert [first.made, again.made, more.made, len(more.files)] == [6, 0, 4, 1]
    # Another scenario has other files.
    assert mf.sweep(small.with_({"run.duration": "9 s"}), AXES, tmp_path).made == 6
    assert len(more.measures()) == 10


def test_without_seeds_a_cell_has_all_seeds_of_the_scenario(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, {"links.rate": ["1 Mbit/s"]}, tmp_path)
    assert sweep.made == 1 and sweep.measures().to_pandas()["seed"].tolist() == [1, 2]


def test_executors_do_not_change_the_bytes(small: mf.Scenario, tmp_path: Path) -> None:
    mf.sweep(small, AXES, tmp_path / "threads")
    with processes() as pool:
        mf.sweep(small, AXES, tmp_path / "processes", executor=pool)
    assert contents(tmp_path / "threads") == contents(tmp_path / "processes")


def test_a_sweep_of_the_command_is_opened(small: mf.Scenario, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(small.text)
    setting = 'sweep.links.rate=["0.5 Mbit/s", "2 Mbit/s"]'
    for shard in ("1/2", "2/2"):
        subprocess.run([PROGRAM, "sim", file, "--set", setting, "--shard", shard, "--out", tmp_path], check=True)
    sweep = mf.Sweep.open(tmp_path / "small" / "cells")
    swept = mf.sweep(small, {"links.rate": ["0.5 Mbit/s", "2 Mbit/s"]}, tmp_path / "here")
    assert sweep.measures().to_arrow() == swept.measures().to_arrow()
    with pytest.raises(ValueError, match="0 files scenario"):
        mf.Sweep.open(tmp_path)


PARENT = """
import sys, manyflow
manyflow.sweep.__globals__["_WRITE_EVERY_S"] = 0.1
manyflow.sweep(open(sys.argv[1]).read(), {"seed": range(3000)}, sys.argv[2])
"""


def test_a_killed_parent_loses_no_run_that_was_written(tmp_path: Path) -> None:
    scenario = mf.Scenario.load(LINK).with_({"run.duration": "0.5 s"})
    file, folder = tmp_path / "link.toml", tmp_path / "killed"
    file.write_text(scenario.text.replace('duration = "1 s"', 'duration = "0.5 s"'))
    scenario = mf.Scenario.load(file.read_text())
    child = subprocess.Popen([sys.executable, "-c", PARENT, file, folder])
    while not list(folder.glob("part-*.parquet")):
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    written = sum(pyarrow.parquet.read_metadata(part).num_rows for part in folder.glob("part-*.parquet"))
    resumed = mf.sweep(scenario, {"seed": range(3000)}, folder)
    assert 0 < written and resumed.made == 3000 - written
    whole = mf.sweep(scenario, {"seed": range(3000)}, tmp_path / "whole")
    shown = {path.name: path.read_bytes() for path in folder.glob("[!.]*")}
    assert whole.made == 3000 and contents(tmp_path / "whole") == shown


def test_a_sweep_runs_on_a_dask_cluster(small: mf.Scenario, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        sweep = mf.sweep(small, AXES, tmp_path, executor=client.get_executor())
    assert sweep.made == 6 and len(sweep.measures()) == 6


class Killer(mf.Controller):
    """Kills the first process that has a connection."""

    def on_ack(self, moment: mf.Moment) -> None:
        try:
            os.close(os.open(os.environ["KILLED_ONCE"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


LINK = {
    "title": "One TCP on a link",
    "run": {"duration": "1 s"},
    "nodes": {"names": ["S", "R"]},
    "links": [{"between": ["S", "R"], "rate": "1 Mbit/s", "delay": "10 ms"}],
    "sessions": [{"name": "own", "protocol": "tcp", "sender": "S", "receivers": ["R"]}],
    "measure": [{"name": "rate", "what": "received-rate", "of": "own"}],
}


def test_cells_of_a_lost_worker_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    scenario = mf.Scenario.load(LINK).with_controller("own", Killer)
    with pytest.raises(BrokenExecutor), processes() as pool:
        mf.sweep(scenario, {"seed": range(4)}, tmp_path, executor=pool)
    (tmp_path / "killed").unlink()
    sweep = mf.sweep(scenario, {"seed": range(4)}, tmp_path, executor=processes)
    assert (tmp_path / "killed").exists() and len(sweep.measures()) == 4


class Unlucky(mf.Controller):
    def on_ack(self, moment: mf.Moment) -> None:
        raise LookupError("on purpose")


def test_cells_that_fail_are_named_after_the_others_have_been_run(tmp_path: Path) -> None:
    scenario = mf.Scenario.load(LINK).with_controller("own", Unlucky)
    with pytest.raises(mf.SweepError, match="2 cells could not be run; .* LookupError") as caught:
        mf.sweep(scenario, {"seed": [1, 2]}, tmp_path)
    assert all(isinstance(error, LookupError) for error in caught.value.failures.values())
    with pytest.raises(mf.ScenarioError):
        mf.sweep(LINK, {"links.rat": ["1 Mbit/s"]}, tmp_path)


class Counted(ThreadPoolExecutor):
    submitted = 0

    def submit(self, *arguments: Any, **named: Any) -> Any:
        self.submitted += 1
        return super().submit(*arguments, **named)


def test_many_cells_are_sent_several_at_a_time_and_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["manyflow.sweep"]
    run_cell = module._run_cell

    def run_all_but_one(scenario: mf.Scenario, cell: int, seeds: tuple[int, ...]) -> Any:
        if seeds == (7,):
            raise LookupError("on purpose")
        return run_cell(scenario, cell, seeds)

    monkeypatch.setattr(module, "_run_cell", run_all_but_one)
    scenario = mf.Scenario.load(LINK).with_({"run.duration": "0.1 s"})
    with Counted(2) as pool, pytest.raises(mf.SweepError, match="1 cells could not be run; .*seed 7: .*LookupError"):
        mf.sweep(scenario, {"seed": range(300)}, tmp_path, executor=pool)
    assert pool.submitted == 150
    monkeypatch.setattr(module, "_run_cell", run_cell)
    assert mf.sweep(scenario, {"seed": range(300)}, tmp_path).made == 1


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_have_the_permissions_that_the_umask_leaves(small: mf.Scenario, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        sweep = mf.sweep(small, AXES, tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert set(map(str, sweep.files)) < set(map(str, files))
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}
