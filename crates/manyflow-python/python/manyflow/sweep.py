"""Sweeps of scenarios over any executor, into partitions of Parquet."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Optional, Union

from ._progress import counter
from .errors import ManyflowError
from .results import _library
from .scenario import Scenario, Source

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.dataset

Executors = Union[Executor, Callable[[], Executor]]
Count = Callable[[], object]

#: The key of an axis whose values are seeds.
SEED = "seed"

#: The number of cells that are sent to a worker at once: several if there are many, because each message costs the
#: parent's time, and at most a share of all, so that all workers end at about the same time.
_CHUNK_MAX = 8
_CHUNKS_MIN = 128


class SweepError(ManyflowError, RuntimeError):
    """Cells of a sweep could not be run. The others are in the folder, and are not run again.

    Attributes:
        failures: The exception of each cell, by the name of its file.
    """

    def __init__(self, failures: Mapping[str, BaseException]) -> None:
        super().__init__(dict(failures))
        self.failures = dict(failures)

    def __str__(self) -> str:
        name, first = next(iter(self.failures.items()))
        return f"{len(self.failures)} cells could not be run; the first is {name}: {first!r}"


@dataclass(frozen=True)
class Sweep:
    """The cells of a sweep in a folder.

    Attributes:
        scenario: The scenario with its axes.
        folder: The folder of the partitions.
        files: The file of each cell, in order.
        made: The number of cells that this call has run; the others were in the folder.
    """

    scenario: Scenario
    folder: Path
    files: list[Path]
    made: int

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Returns all rows as a ``pyarrow.dataset.Dataset``, which reads them when they are needed.

        The columns are ``cell`` (uint32), ``seed`` (uint64), ``time_s`` (float64; null for measures), ``observable`` (the
        name of the observable or of the measure), ``subject`` (empty for measures) and ``value`` (float64).
        """
        dataset = _library("pyarrow.dataset", "arrow")
        return dataset.dataset([str(file) for file in self.files], format="parquet", schema=_schema())

    def cells(self) -> pyarrow.Table:
        """Returns the values of the axes in each cell: a row for each cell."""
        return _cells(self.scenario)

    def measures(self) -> pandas.DataFrame:
        """Returns the measures as a ``pandas.DataFrame``: a row for each cell and seed, with the values of the axes."""
        pandas = _library("pandas", "pandas")
        compute = _library("pyarrow.compute", "arrow")
        rows = self.dataset().to_table(filter=compute.field("time_s").is_null()).to_pandas()
        names = list(dict.fromkeys(rows["observable"]))
        wide = rows.pivot(index=["cell", "seed"], columns="observable", values="value")[names].reset_index()
        wide.columns.name = None
        return pandas.merge(self.cells().to_pandas(), wide, on="cell")


def sweep(
    scenario: Union[Scenario, Source],
    axes: Mapping[str, Iterable[Any]],
    folder: Union[str, os.PathLike[str]],
    *,
    executor: Optional[Executors] = None,
    retries: int = 2,
    progress: Optional[bool] = None,
) -> Sweep:
    """Runs a scenario with all combinations of some values, and writes each as a file of Parquet.

    A cell whose file is in the folder is not run again: a sweep that was interrupted continues, and one with more seeds
    adds only these. A file is complete under its name. Names are ``cell-HASH-NUMBER.parquet``, where HASH is the beginning
    of :attr:`Scenario.fingerprint`, and ``cell-HASH-NUMBER-seed-SEED.parquet`` if seeds are an axis.

    Args:
        scenario: The scenario, or what :meth:`Scenario.load` takes. Its own sweep is part of the sweep.
        axes: The values of each axis by its key (see :meth:`Scenario.with_`); ``"seed"`` stands for the seeds.
        folder: The folder of the files, which all workers have to see under this path.
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
    tasks = list(_tasks(swept, Path(folder).absolute(), seeds))
    missing = [task for task in tasks if not os.path.exists(task.file)]
    Path(folder).mkdir(parents=True, exist_ok=True)
    _write_atomically(_cells(swept), Path(folder) / f"_cells-{swept.fingerprint[:16]}.parquet")
    with counter(swept.id, len(tasks), len(tasks) - len(missing), progress) as count:
        failures = _run_everywhere(executor or _threads, missing, retries, count)
    if failures:
        raise SweepError(failures)
    return Sweep(swept, Path(folder), [Path(task.file) for task in tasks], len(missing))


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
class _Task:
    """A cell that is to be run, as workers receive it."""

    scenario: _Sent
    cell: int
    seeds: tuple[int, ...]
    fingerprint: str
    file: str


def _run_cells(tasks: tuple[_Task, ...]) -> dict[int, Exception]:
    """Runs cells in a worker, and returns the exceptions of those that failed, by their places."""
    failures: dict[int, Exception] = {}
    for place, task in enumerate(tasks):
        try:
            _run_cell(task)
        except Exception as error:
            failures[place] = error
    return failures


def _run_cell(task: _Task) -> None:
    """Runs a cell, and writes its file."""
    scenario = _known(task.scenario)
    results = scenario.run(list(task.seeds), cells=[task.cell], threads=1, progress=False)
    table = _library("pyarrow", "arrow").table(results._native.long_rows()).cast(_schema())
    origin = {"manyflow.fingerprint": task.fingerprint, "manyflow.scenario": scenario.id}
    _write_atomically(table.replace_schema_metadata(origin), Path(task.file))


@lru_cache(maxsize=4)
def _known(scenario: _Sent) -> Scenario:
    """Reads a scenario once in each process. Its cells were checked before it was sent."""
    return scenario.read()


def _tasks(swept: Scenario, folder: Path, seeds: Optional[list[int]]) -> Iterator[_Task]:
    """Yields a task for each cell, or for each cell and seed if seeds are an axis."""
    fingerprint = swept.fingerprint
    sent = _Sent(swept)
    own = tuple(swept.seeds)
    for cell in range(swept.cells):
        name = f"{folder}/cell-{fingerprint[:16]}-{cell}"
        if seeds is None:
            yield _Task(sent, cell, own, fingerprint, f"{name}.parquet")
            continue
        for seed in seeds:
            yield _Task(sent, cell, (int(seed),), fingerprint, f"{name}-seed-{int(seed)}.parquet")


def _run_everywhere(executor: Executors, tasks: list[_Task], retries: int, count: Count) -> dict[str, BaseException]:
    """Runs all tasks, in new executors if one is lost and can be made again."""
    if isinstance(executor, Executor):
        return _run_all(executor, tasks, retries, count)
    while True:
        with executor() as made:
            try:
                return _run_all(made, [task for task in tasks if not os.path.exists(task.file)], retries, count)
            except BrokenExecutor:
                if retries == 0:
                    raise
                retries -= 1


def _run_all(executor: Executor, tasks: list[_Task], retries: int, count: Count) -> dict[str, BaseException]:
    """Runs all tasks, and returns the exceptions of those that failed, by the names of their files."""
    failures: dict[str, BaseException] = {}
    ended: SimpleQueue[Future[dict[int, Exception]]] = SimpleQueue()
    pending: dict[Future[dict[int, Exception]], tuple[tuple[_Task, ...], int]] = {}

    def submit(chunk: tuple[_Task, ...], left: int) -> None:
        future = executor.submit(_run_cells, chunk)
        pending[future] = (chunk, left)
        future.add_done_callback(ended.put)

    try:
        size = max(1, min(_CHUNK_MAX, len(tasks) // _CHUNKS_MIN))
        for start in range(0, len(tasks), size):
            submit(tuple(tasks[start : start + size]), retries)
        while pending:
            future = ended.get()
            chunk, left = pending.pop(future)
            lost = future.exception()
            if isinstance(lost, BrokenExecutor):
                raise lost
            # If a worker is lost, it may have written some of the files.
            failed = {} if lost is not None else future.result()
            errors = [lost or failed.get(place) for place in range(len(chunk))]
            for task, error in zip(chunk, errors):
                if error is None or (lost is not None and os.path.exists(task.file)):
                    count()
                elif left > 0 and _is_loss(error):
                    submit((task,), left - 1)
                else:
                    failures[os.path.basename(task.file)] = error
                    count()
    finally:
        for future in pending:
            future.cancel()
    return failures


def _is_loss(error: BaseException) -> bool:
    """Returns whether a worker was lost, so that another one may succeed. Errors of scenarios and runs are not losses."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, (OSError, EOFError)) or bool(names & {"KilledWorker", "CommClosedError", "RayError"})


def _threads() -> Executor:
    return ThreadPoolExecutor(os.cpu_count())


def _schema() -> pyarrow.Schema:
    """The schema of all partitions."""
    arrow = _library("pyarrow", "arrow")
    text = arrow.dictionary(arrow.int32(), arrow.string())
    return arrow.schema([
        arrow.field("cell", arrow.uint32()),
        arrow.field("seed", arrow.uint64()),
        arrow.field("time_s", arrow.float64()),
        arrow.field("observable", text),
        arrow.field("subject", text),
        arrow.field("value", arrow.float64()),
    ])  # fmt: skip


def _cells(swept: Scenario) -> pyarrow.Table:
    """Returns the values of the axes in each cell."""
    arrow = _library("pyarrow", "arrow")
    labels = [swept.cell(cell) for cell in range(swept.cells)]
    columns = {"cell": arrow.array(range(swept.cells), arrow.uint32())}
    columns.update({key: arrow.array([row[key] for row in labels], arrow.string()) for key in swept.axes})
    return arrow.table(columns)


def _write_atomically(table: pyarrow.Table, file: Path) -> None:
    """Writes a table, which appears under its name when it is complete."""
    parquet = _library("pyarrow.parquet", "arrow")
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    try:
        # Unlike a temporary file, this one has the permissions that the umask leaves.
        parquet.write_table(table, temporary)
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
