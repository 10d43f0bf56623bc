"""Sweeps on a local cluster of Ray. `scripts/python ray` installs Ray, which is too large for each run of the tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import manyflow as mf
import pytest
from test_sweep import AXES, LINK

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    tests = str(Path(__file__).parent)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", runtime_env={"env_vars": {"PYTHONPATH": tests}})
    yield
    ray.shutdown()


def executor() -> "mf.ray.RayExecutor":
    from manyflow.ray import RayExecutor

    return RayExecutor()


def test_a_sweep_runs_on_a_ray_cluster(small: mf.Scenario, tmp_path: Path) -> None:
    with executor() as pool:
        sweep = mf.sweep(small, AXES, tmp_path, executor=pool)
    assert sweep.made == 6 and len(sweep.measures()) == 6
    with executor() as pool:
        assert mf.sweep(small, AXES, tmp_path, executor=pool).made == 0


class Killer(mf.Controller):
    """Kills the first process that has a connection."""

    folder = ""

    def on_ack(self, moment: mf.Moment) -> None:
        try:
            os.close(os.open(Path(self.folder) / "killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def test_cells_of_a_killed_worker_are_run_again(tmp_path: Path) -> None:
    kind = type("KillerHere", (Killer,), {"folder": str(tmp_path)})
    scenario = mf.Scenario.load(LINK).with_controller("own", kind)
    sweep = mf.sweep(scenario, {"seed": range(4)}, tmp_path / "cells", executor=executor)
    assert (tmp_path / "killed").exists()
    assert len(sweep.measures()) == 4
