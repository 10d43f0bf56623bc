"""Sweeps over threads, processes and Dask, and their partitions."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pyarrow.parquet
import pytest

import manyflow as mf

AXES = {"links.rate": ["0.5 Mbit/s", "2 Mbit/s"], "seed": range(3)}
# Workers do not inherit the threads of this process.
processes = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))


def test_a_sweep_writes_a_partition_for_each_cell_and_seed(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, tmp_path, executor=ThreadPoolExecutor(2))
    names = {path.name for path in tmp_path.glob("cell-*.parquet")}
    assert names == {f"cell-{sweep.scenario.fingerprint[:16]}-{cell}-seed-{seed}.parquet" for cell in (0, 1) for seed in range(3)}
    table = pyarrow.parquet.read_table(sweep.files[4])
    assert table.schema.names == ["cell", "seed", "time_s", "observable", "subject", "value"]
    assert table.schema.metadata[b"manyflow.fingerprint"].decode() == sweep.scenario.fingerprint
    rows = table.to_pylist()
    assert rows[0] == {"cell": 1, "seed": 1, "time_s": None, "observable": "rate", "subject": "", "value": pytest.approx(1e6, rel=0.01)}
    assert len(rows) == 11 and rows[10]["time_s"] == 10.0 and rows[10]["subject"] == "cbr/R"


def test_other_programs_read_the_partitions_together(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, tmp_path)
    assert sweep.dataset().count_rows() == 66
    frame = polars.scan_parquet(f"{tmp_path}/cell-*.parquet").filter(polars.col("time_s").is_null()).collect()
    assert sorted(frame["cell"].to_list()) == [0, 0, 0, 1, 1, 1]
    duckdb = pytest.importorskip("duckdb")
    query = f"select cell, count(*) from '{tmp_path}/cell-*.parquet' where observable = 'rate' group by cell order by cell"
    assert duckdb.sql(query).fetchall() == [(0, 3), (1, 3)]


def test_measures_have_the_values_of_the_axes(small: mf.Scenario, tmp_path: Path) -> None:
    frame = mf.sweep(small, AXES, tmp_path).measures()
    assert list(frame.columns) == ["cell", "links.rate", "seed", "rate"] and len(frame) == 6
    assert frame["rate"].tolist()[:3] == pytest.approx([0.5e6] * 3, rel=0.01)


def test_cells_that_are_there_are_not_run_again(small: mf.Scenario, tmp_path: Path) -> None:
    first = mf.sweep(small, AXES, tmp_path)
    times = {file: file.stat().st_mtime_ns for file in first.files}
    again = mf.sweep(small, AXES, tmp_path)
    more = mf.sweep(small, {**AXES, "seed": range(5)}, tmp_path)
    first.files[2].unlink()
    mended = mf.sweep(small, AXES, tmp_path)
    assert [first.made, again.made, more.made, mended.made] == [6, 0, 4, 1]
    assert all(file.stat().st_mtime_ns == times[file] for file in first.files if file != first.files[2])
    # Another scenario has other files.
    assert mf.sweep(small.with_({"run.duration": "9 s"}), AXES, tmp_path).made == 6


def test_without_seeds_a_partition_has_all_seeds_of_the_scenario(small: mf.Scenario, tmp_path: Path) -> None:
    sweep = mf.sweep(small, {"links.rate": ["1 Mbit/s"]}, tmp_path)
    (file,) = sweep.files
    assert file.name == f"cell-{sweep.scenario.fingerprint[:16]}-0.parquet"
    assert sweep.dataset().to_table()["seed"].unique().to_pylist() == [1, 2]


def test_executors_do_not_change_the_rows(small: mf.Scenario, tmp_path: Path) -> None:
    one = mf.sweep(small, AXES, tmp_path / "threads")
    with processes() as pool:
        two = mf.sweep(small, AXES, tmp_path / "processes", executor=pool)
    for here, there in zip(one.files, two.files):
        assert pyarrow.parquet.read_table(here) == pyarrow.parquet.read_table(there)


def test_a_sweep_runs_on_a_dask_cluster(small: mf.Scenario, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        sweep = mf.sweep(small, AXES, tmp_path, executor=client.get_executor())
    assert sweep.made == 6 and sweep.dataset().count_rows() == 66


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
    assert (tmp_path / "killed").exists() and sweep.dataset().count_rows() == 4


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

    def run_all_but_one(task: Any) -> None:
        if task.seeds == (7,):
            raise LookupError("on purpose")
        run_cell(task)

    monkeypatch.setattr(module, "_run_cell", run_all_but_one)
    scenario = mf.Scenario.load(LINK).with_({"run.duration": "0.1 s"})
    with Counted(2) as pool, pytest.raises(mf.SweepError, match="1 cells could not be run; .*-seed-7.* LookupError"):
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
