"""Sweeps of scenarios over any executor, into files of Parquet."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from ._folder import Folder, open_folder
from ._progress import counter
from .errors import ManyflowError
from .results import Table, _library
from .scenario import Scenario, Source

if TYPE_CHECKING:
    import pyarrow.dataset

Executors = Union[Executor, Callable[[], Executor]]
Count = Callable[[], object]

#: A cell with the seeds that are run together.
_Cell = tuple[int, tuple[int, ...]]

#: The key of an axis whose values are seeds.
SEED = "seed"

#: The number of cells that are sent to a worker at once: several if there are many, because each message costs the
#: parent's time and each worker writes a file, and at most a share of all, so that all workers end at about the same time.
_CHUNK_MAX = 8
_CHUNKS_MIN = 128
_CHUNKS_MAX = 1024
#: The number of chunks that wait at an executor.
_PENDING_MAX = 2048
#: The seconds after which a worker writes the runs that have ended. If it is killed, no others are lost.
_WRITE_EVERY_S = 5.0


class SweepError(ManyflowError, RuntimeError):
    """Cells of a sweep could not be run. The others are in the folder, and are not run again.

    Attributes:
        failures: The exception of each cell, by its name: ``"cell 3"``, or ``"cell 3, seed 7"`` if seeds are an axis.
    """

    def __init__(self, failures: Mapping[str, BaseException]) -> None:
        super().__init__(dict(failures))
        self.failures = dict(failures)

    def __str__(self) -> str:
        name, first = next(iter(self.failures.items()))
        return f"{len(self.failures)} cells could not be run; the first is {name}: {first!r}"


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep in a folder: a row for each run, in the order of cells and seeds.

    Attributes:
        scenario: The scenario with its axes.
        folder: The folder of the files.
        files: The files of Parquet, in order: at most 64. Those of an object store are copies, which are removed with
            this object.
        seeds: The seeds of each cell. The files may have others, of earlier calls.
        made: The number of cells that this call has run; the others were in the folder.
    """

    scenario: Scenario
    folder: Union[Path, str]
    files: list[Path]
    seeds: list[int]
    made: int
    _copy: Folder = field(repr=False, compare=False)

    @classmethod
    def open(cls, folder: Union[str, os.PathLike[str]]) -> Sweep:
        """Opens the runs that are in a folder, also if ``manyflow sim --shard`` has written them or others still do.

        It warns of runs that another version or build of manyflow has made, and leaves them out.

        Args:
            folder: The folder of a sweep, or ``OUT/ID/cells`` of the command; also an address, as of :func:`sweep`.

        Raises:
            ValueError: if the folder has no scenario, or several, or one of another version or with a controller in
                Python.
        """
        opened = open_folder(folder)
        opened.pull()
        scenario = _stored(opened)
        store = _native.SweepStore(opened.here, scenario._native, scenario.fingerprint)
        _warn_of_others(store, opened)
        seeds = sorted({seed for _, seed in store.known()})
        return cls(scenario, opened.given, _compacted(store, opened), seeds, 0, opened)

    def measures(self) -> Table:
        """Returns the measures: a row for each run, which is read while it is taken.

        The columns are ``cell`` (uint32), each axis (its values as they are written), ``seed`` (uint64), each measure
        (float64, null if nothing was observed) in the unit of its metadata, and ``verdict: WHAT`` for each expectation
        of every cell: the verdict of the runs of this cell that were made together, or null if it does not concern the cell.
        """
        return Table(self._store().measures(self.files, set(self.seeds)))

    def series(self) -> Table:
        """Returns the points of the lines of all plots over time, with the columns of :meth:`Results.series`."""
        return Table(self._store().series(self.files, set(self.seeds)))

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Returns the rows of the files as a ``pyarrow.dataset.Dataset``, which reads the columns that are needed.

        Besides the columns of :meth:`measures`, it has those of ``run``: ``docs/python.md`` lists them.
        """
        dataset = _library("pyarrow.dataset", "arrow")
        rows = dataset.dataset([str(file) for file in self.files], format="parquet")
        return rows.filter(_library("pyarrow.compute", "arrow").field(SEED).isin(self.seeds))

    def _store(self) -> _native.SweepStore:
        return _native.SweepStore(self._copy.here, self.scenario._native, self.scenario.fingerprint)


def sweep(
    scenario: Union[Scenario, Source],
    axes: Mapping[str, Iterable[Any]],
    folder: Union[str, os.PathLike[str]],
    *,
    executor: Optional[Executors] = None,
    retries: int = 2,
    progress: Optional[bool] = None,
) -> Sweep:
    """Runs a scenario with all combinations of some values, and writes a row for each run to files of Parquet.

    A run that is in the folder is not made again: a sweep that was interrupted continues, and one with more seeds
    adds only these. Each worker writes its runs to files of its own, at most five seconds after they have ended; at the
    end, all rows are brought in order in at most 64 files. The same sweep gives the same bytes on any executor.

    Args:
        scenario: The scenario, or what :meth:`Scenario.load` takes. Its own sweep is part of the sweep.
        axes: The values of each axis by its key (see :meth:`Scenario.with_`); ``"seed"`` stands for the seeds.
        folder: The folder of the files, which all workers have to see under this path. Or the address of a folder in an
            object store, such as ``s3://bucket/sweep``, for which fsspec and its driver (for S3, s3fs) are installed where
            workers run. They find the store and its keys as fsspec does, by the environment or its files.
        executor: Any executor of :mod:`concurrent.futures`: threads, processes, Dask's ``client.get_executor()``, or
            :class:`manyflow.ray.RayExecutor`. A function that makes one, such as ``lambda: ProcessPoolExecutor(8)``, is
            called again if the executor itself is lost, as a pool is whose process was killed. By default a thread for
            each core.
        retries: How often a cell is run again if its worker is lost, and an executor made again.
        progress: Whether to show a bar; by default on terminals and in notebooks.

    Raises:
        ScenarioError: if an axis is wrong.
        SweepError: if cells failed, after all others have been run.
        concurrent.futures.BrokenExecutor: if the executor itself is lost and cannot be made again. Call again with a new
            one: only the missing cells are run.
    """
    given = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    values = {key: list(axis) for key, axis in axes.items()}
    seeds = values.pop(SEED, None)
    swept = given.with_({f"sweep.{key}": axis for key, axis in values.items()})
    wanted = swept.seeds if seeds is None else [int(seed) for seed in seeds]
    together = [tuple(wanted)] if seeds is None else [(seed,) for seed in wanted]
    opened = open_folder(folder)
    work = _Work(swept, opened, [(cell, own) for cell in range(swept.cells) for own in together])
    _warn_of_others(work.store, opened)
    missing = work.missing(work.cells)
    with counter(swept.id, len(work.cells), len(work.cells) - len(missing), progress) as count:
        failures = _run_everywhere(executor or _threads, work, missing, retries, count)
    files = _compacted(work.store, opened)
    if failures:
        names = _names(failures, seeds is not None)
        raise SweepError(names)
    return Sweep(swept, opened.given, files, wanted, len(missing), opened)


def _compacted(store: _native.SweepStore, folder: Folder) -> list[Path]:
    """Brings the rows of a folder in order, and returns the files."""
    folder.pull()
    files = [Path(file) for file in store.compact()]
    folder.push()
    return files


def _stored(folder: Folder) -> Scenario:
    """Reads the scenario of a folder."""
    files = sorted(folder.here.glob("scenario-*.json"))
    if len(files) != 1:
        raise ValueError(f"{folder.address} has {len(files)} files scenario-*.json: name a folder with the sweep of one scenario")
    given = json.loads(files[0].read_text(encoding="utf-8"))
    read = Scenario(given["file"], given["text"], fast=given["fast"], settings=given["settings"], cell=0, traces=given.get("traces"))
    if files[0].name != f"scenario-{read.fingerprint[:16]}.json":
        raise ValueError(f"{folder.address}/{files[0].name} is of another version, or has a controller in Python: call sweep() with its arguments")
    return read


def _warn_of_others(store: _native.SweepStore, folder: Folder) -> None:
    """Warns the caller of :func:`sweep` or :meth:`Sweep.open` of runs that other builds of manyflow have made."""
    for sentence in store.left_out():
        warnings.warn(sentence.replace(str(folder.here), folder.address), stacklevel=3)


def _names(failures: Mapping[_Cell, BaseException], with_seeds: bool) -> dict[str, BaseException]:
    """Returns the exceptions by the names of cells."""
    return {f"cell {cell}, seed {seeds[0]}" if with_seeds else f"cell {cell}": error for (cell, seeds), error in failures.items()}


class _Sent:
    """A scenario on its way to a worker, which reads it when the first of its cells is run."""

    def __init__(self, scenario: Scenario) -> None:
        arguments = scenario._arguments
        self._parts = arguments[:4], arguments[5], tuple(scenario._controls.items())

    def read(self) -> Scenario:
        (file, text, fast, settings), traces, controls = self._parts
        scenario = Scenario(file, text, fast=fast, settings=settings, cell=0, traces=dict(traces))
        scenario._controls = dict(controls)
        return scenario

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sent) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)


@dataclass(frozen=True)
class _Chunk:
    """Cells that are to be run, as a worker receives them."""

    scenario: _Sent
    folder: str
    fingerprint: str
    cells: tuple[_Cell, ...]


class _Work:
    """The cells of a sweep, and the folder of their rows."""

    def __init__(self, swept: Scenario, folder: Folder, cells: list[_Cell]) -> None:
        self.cells = cells
        self._chunk = _Sent(swept), folder.address, swept.fingerprint
        self._folder = folder
        folder.pull()
        self.store = _native.SweepStore(folder.here, swept._native, swept.fingerprint)
        folder.push_new()

    def chunk(self, cells: Iterable[_Cell]) -> _Chunk:
        return _Chunk(*self._chunk, tuple(cells))

    def missing(self, cells: Iterable[_Cell]) -> list[_Cell]:
        """Returns the cells of which the folder does not have all runs."""
        self._folder.pull()
        known = self.store.known()
        return [(cell, seeds) for cell, seeds in cells if any((cell, seed) not in known for seed in seeds)]


def _run_cells(chunk: _Chunk) -> dict[int, Exception]:
    """Runs cells in a worker, and returns the exceptions of those that failed, by their places."""
    scenario = _known(chunk.scenario)
    folder = open_folder(chunk.folder)
    folder.look()
    store = _native.SweepStore(folder.here, scenario._native, chunk.fingerprint)
    failures: dict[int, Exception] = {}
    written = time.monotonic()
    try:
        for place, (cell, seeds) in enumerate(chunk.cells):
            try:
                store.add(_run_cell(scenario, cell, seeds))
            except Exception as error:
                failures[place] = error
            if time.monotonic() - written >= _WRITE_EVERY_S:
                store.flush()
                folder.push_new()
                written = time.monotonic()
    finally:
        store.flush()
        folder.push_new()
    return failures


def _run_cell(scenario: Scenario, cell: int, seeds: tuple[int, ...]) -> _native.Results:
    return scenario.run(list(seeds), cells=[cell], threads=1, progress=False)._native


@lru_cache(maxsize=4)
def _known(scenario: _Sent) -> Scenario:
    """Reads a scenario once in each process. Its cells were checked before it was sent."""
    return scenario.read()


def _run_everywhere(executor: Executors, work: _Work, cells: list[_Cell], retries: int, count: Count) -> dict[_Cell, BaseException]:
    """Runs all cells, in new executors if one is lost and can be made again."""
    if isinstance(executor, Executor):
        return _run_all(executor, work, cells, retries, count)
    while True:
        with executor() as made:
            try:
                return _run_all(made, work, cells, retries, count)
            except BrokenExecutor:
                if retries == 0:
                    raise
                retries -= 1
        cells = work.missing(cells)


def _run_all(executor: Executor, work: _Work, cells: list[_Cell], retries: int, count: Count) -> dict[_Cell, BaseException]:
    """Runs all cells, and returns the exceptions of those that failed."""
    failures: dict[_Cell, BaseException] = {}
    ended: SimpleQueue[Future[dict[int, Exception]]] = SimpleQueue()
    pending: dict[Future[dict[int, Exception]], tuple[tuple[_Cell, ...], int]] = {}

    def submit(own: tuple[_Cell, ...], left: int) -> None:
        future = executor.submit(_run_cells, work.chunk(own))
        pending[future] = (own, left)
        future.add_done_callback(ended.put)

    chunks = _chunks(cells)
    try:
        while True:
            while len(pending) < _PENDING_MAX and (chunk := next(chunks, None)):
                submit(chunk, retries)
            if not pending:
                return failures
            future = ended.get()
            own, left = pending.pop(future)
            lost = future.exception()
            if isinstance(lost, BrokenExecutor):
                raise lost
            # A worker that is lost may have written some of its cells.
            missing = set(own if lost is None else work.missing(own))
            failed = future.result() if lost is None else {}
            for place, cell in enumerate(own):
                error = failed.get(place) or (lost if cell in missing else None)
                if error is None:
                    count()
                elif left > 0 and _is_loss(error):
                    submit((cell,), left - 1)
                else:
                    failures[cell] = error
                    count()
    finally:
        for future in pending:
            future.cancel()


def _chunks(cells: list[_Cell]) -> Iterator[tuple[_Cell, ...]]:
    """Yields the cells in chunks, each for one worker."""
    size = max(1, min(_CHUNK_MAX, len(cells) // _CHUNKS_MIN), len(cells) // _CHUNKS_MAX)
    for start in range(0, len(cells), size):
        yield tuple(cells[start : start + size])


def _is_loss(error: BaseException) -> bool:
    """Returns whether a worker was lost, so that another one may succeed. Errors of scenarios and runs are not losses."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, (OSError, EOFError)) or bool(names & {"KilledWorker", "CommClosedError", "RayError"})


def _threads() -> Executor:
    return ThreadPoolExecutor(os.cpu_count())
