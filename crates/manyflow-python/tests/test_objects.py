"""Sweeps in object stores: in memory, and by S3 in a store of this project (`scripts/python objects`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import PROGRAM
from test_sweep import AXES, LINK, Killer, contents, processes

import manyflow as mf

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Iterator[str]:
    address = f"memory://sweeps/{uuid4()}"
    yield address
    fsspec.filesystem("memory").rm(address, recursive=True)


def objects(address: str) -> dict[str, bytes]:
    store, path = fsspec.core.url_to_fs(address)
    store.invalidate_cache()
    return {name.rsplit("/", 1)[-1]: store.cat_file(name) for name in store.ls(path, detail=False)}


def test_an_object_store_gets_the_bytes_of_a_folder(small: mf.Scenario, memory: str, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, memory, executor=ThreadPoolExecutor(2))
    local = mf.sweep(small, AXES, tmp_path)
    assert objects(memory) == contents(tmp_path)
    assert sweep.folder == memory and sweep.made == 6
    assert sweep.measures().to_pandas().equals(local.measures().to_pandas())
    assert sweep.dataset().count_rows() == 6 and len(sweep.series()) == 60


def test_runs_of_an_object_store_are_not_made_again(small: mf.Scenario, memory: str) -> None:
    mf.sweep(small, AXES, memory)
    before = objects(memory)
    assert mf.sweep(small, AXES, memory).made == 0
    assert objects(memory) == before
    more = mf.sweep(small, {**AXES, "seed": range(4)}, memory)
    assert more.made == 2 and len(more.measures()) == 8
    # Rows in order replace those of earlier calls.
    assert [name for name in objects(memory) if name.startswith("rows-")] == [path.name for path in more.files]
    opened = mf.Sweep.open(memory)
    assert opened.seeds == [0, 1, 2, 3] and len(opened.measures()) == 8


def test_parts_that_others_write_and_remove_meanwhile_are_no_loss(small: mf.Scenario, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process brings the rows in order after this one has listed the parts."""
    from manyflow._folder import Objects

    # The name in the package is the function.
    monkeypatch.setattr(sys.modules["manyflow.sweep"], "_compacted", lambda store, folder: [])
    mf.sweep(small, AXES, memory)
    monkeypatch.undo()
    assert sum(name.startswith("part-") for name in objects(memory)) == 6
    look, looks = Objects.look, []

    def overtaken(folder: Objects) -> None:
        look(folder)
        looks.append(folder)
        if len(looks) == 1:
            mf.Sweep.open(memory)

    monkeypatch.setattr(Objects, "look", overtaken)
    assert len(mf.Sweep.open(memory).measures()) == 6
    assert len(looks) > 2


def test_a_store_that_fails_once_costs_no_run(small: mf.Scenario, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(fsspec.filesystem("memory"))
    put, failed = kind.put_file, []

    def flaky(store: Any, here: str, there: str, **options: Any) -> None:
        if "part-" in there and not failed:
            failed.append(there)
            raise OSError("the store is away")
        put(store, here, there, **options)

    monkeypatch.setattr(kind, "put_file", flaky)
    sweep = mf.sweep(small, AXES, memory)
    assert failed and len(sweep.measures()) == 6


def test_copies_are_removed_with_the_sweep(small: mf.Scenario, memory: str) -> None:
    sweep = mf.sweep(small, AXES, memory)
    (file,) = sweep.files
    assert file.exists()
    del sweep
    assert not file.parent.exists()


def test_addresses_that_cannot_be_used_are_named(small: mf.Scenario, memory: str) -> None:
    with pytest.raises(ValueError, match="file:///tmp/x: name a folder of this machine by its path"):
        mf.sweep(small, AXES, "file:///tmp/x")
    with pytest.raises(ValueError, match="no-such-store"):
        mf.sweep(small, AXES, "no-such-store://x")
    with pytest.raises(ValueError, match=f"{memory} has 0 files scenario"):
        mf.Sweep.open(memory)
    mf.sweep(small, AXES, memory)


class Store:
    """A store of two members with its S3 surface, on loopback."""

    def __init__(self, folder: Path) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        members = [self._start("store", "--dir", str(folder / name), "--name", name)["listen"] for name in "ab"]
        named = [f"--member={name}={address}" for name, address in zip("ab", members)]
        keys = folder / "keys.txt"
        keys.write_text("AKTESTS a-secret-of-these-tests\n")
        self.url = self._start("store", "s3", *named, "--credentials", str(keys))["url"]

    def _start(self, *words: str) -> dict[str, str]:
        """Starts a role, and returns the object that says that it runs."""
        command = [str(PROGRAM), *words, "--listen", "127.0.0.1:0", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            event: dict[str, str] = json.loads(line)
            if event["event"] == "started":
                return event
        raise AssertionError(f"{command} has ended")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    s3fs = pytest.importorskip("s3fs")
    store = Store(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKTESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-these-tests")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("sweeps")
    yield "s3://sweeps/small"
    store.stop()


def test_processes_write_a_sweep_to_a_bucket(small: mf.Scenario, bucket: str, tmp_path: Path) -> None:
    sweep = mf.sweep(small, AXES, bucket, executor=processes)
    mf.sweep(small, AXES, tmp_path / "local")
    assert objects(bucket) == contents(tmp_path / "local")
    assert mf.sweep(small, AXES, bucket).made == 0 and len(sweep.measures()) == 6


def test_cells_of_a_killed_process_are_run_again_into_the_bucket(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    scenario = mf.Scenario.load(LINK).with_controller("own", Killer)
    sweep = mf.sweep(scenario, {"seed": range(4)}, bucket, executor=processes)
    assert (tmp_path / "killed").exists() and len(sweep.measures()) == 4
    assert not [name for name in objects(bucket) if name.startswith("part-")]
