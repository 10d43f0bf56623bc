"""Scenarios: networks, sessions, sweeps, measures and expectations."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from . import _native, _toml
from ._progress import bar
from .controller import Control
from .errors import ScenarioError
from .results import Results

Source = Union[str, "os.PathLike[str]", Mapping[str, Any]]
# The arguments of a scenario in order. The last has the rate traces by their paths.
_Arguments = tuple[str, str, bool, tuple[str, ...], Optional[int], tuple[tuple[str, str], ...]]


def scenarios() -> list[str]:
    """Returns the ids of the scenarios in this package: the figures of the papers, and comparisons."""
    return _native.builtin_names()


class Scenario:
    """A scenario that has been read and checked. Scenarios do not change; :meth:`with_` returns another one.

    Scenarios can be pickled, so that other processes can run them.
    """

    def __init__(
        self,
        file: str,
        text: str,
        *,
        fast: bool = False,
        settings: Sequence[str] = (),
        cell: Optional[int] = None,
        traces: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Reads a text. Most programs call :meth:`load` instead.

        Args:
            file: The name of the text in errors. Without folder and extension, it is the scenario's id.
            text: A scenario in TOML.
            fast: Whether to use the values of ``[fast]``: fewer seeds, shorter runs.
            settings: Values that replace those of the text, each as ``KEY=VALUE`` in TOML.
            cell: The only cell whose network is checked, if not all are.
            traces: The texts of rate traces by the paths in the scenario. All others are read from files, whose paths
                begin in the folder of ``file``.
        """
        self._native = _native.Scenario(file, text, fast, list(settings), cell, dict(traces or {}))
        self._arguments = (file, text, fast, tuple(settings), cell, tuple(self._native.traces))
        self._controls: dict[str, Callable[[], Control]] = {}

    @classmethod
    def load(cls, source: Source, *, fast: bool = False) -> Scenario:
        """Reads a scenario.

        Args:
            source: The id of a scenario in this package (``"webrc-9"``; see :func:`scenarios`), the path of a
                file, a text in TOML (with at least one line break), or a dict with the same tables.
            fast: Whether to use the values of ``[fast]``: fewer seeds, shorter runs, wider bounds.

        Raises:
            ScenarioError: with file, line and key, if the scenario is wrong or there is none.
            OSError: if the file cannot be read.
        """
        file, text = _read(source)
        return cls(file, text, fast=fast)

    def with_(self, settings: Optional[Mapping[str, Any]] = None, /, **tables: Any) -> Scenario:
        """Returns a scenario with other values.

        Args:
            settings: Values by their dotted keys: ``{"links.bottleneck.rate": "5 Mbit/s"}``. Lists of tables are
                entered by the ``name`` of an item or its number from 0. Without it, the key means the only
                item that has it: ``"links.rate"``. Values are numbers, texts with units, bools or lists; nested
                dicts are also accepted. A key that the scenario sweeps is replaced by ``"sweep.KEY": [...]``.
            tables: The same for whole tables: ``run={"seeds": 2}``.

        Raises:
            ScenarioError: with ``file`` ``"with_"`` and the number of the setting as its ``line``.
        """
        file, text, fast, before, cell, traces = self._arguments
        given = {**(settings or {}), **tables}
        added = [f"{name}={_toml.value(item)}" for name, item in _toml.leaves(given)]
        changed = Scenario(file, text, fast=fast, settings=[*before, *added], cell=cell, traces=dict(traces))
        changed._controls = self._controls
        return changed

    def with_controller(self, session: str, make: Callable[[], Control]) -> Scenario:
        """Returns a scenario in which a TCP session has a congestion control written in Python.

        This is right, and slow: each acknowledgement is a call into Python. An exception of the control stops all runs,
        and :meth:`run` raises it.

        Args:
            session: The ``name`` of the session.
            make: The class of the control (see :class:`Controller`), or another callable without arguments. It is
                called for each connection. To send the scenario to other processes, define it in a module.

        Raises:
            ScenarioError: if there is no such session, or if it is not one of TCP.
        """
        name = str(getattr(make, "__name__", type(make).__name__))
        changed = self.with_({f"sessions.{session}.tcp.control": name})
        changed._controls = {**self._controls, name: make}
        return changed

    def run(
        self,
        seeds: Union[int, Iterable[int], None] = None,
        *,
        threads: Optional[int] = None,
        cells: Optional[Iterable[int]] = None,
        progress: Optional[bool] = None,
        keep_failures: bool = False,
    ) -> Results:
        """Makes runs, without the GIL. The same scenario, cell and seed give the same results, on any machine.

        Ctrl-C stops the runs and raises :class:`KeyboardInterrupt`.

        Args:
            seeds: The number of seeds of each cell, or the seeds themselves; by default those of the scenario.
            threads: The number of threads, which does not change results; by default the number of cores.
            cells: The numbers of the cells of the sweep to run; by default all.
            progress: Whether to show a bar; by default on terminals and in notebooks.
            keep_failures: Whether results with failed runs are returned (see :attr:`Results.failures`) instead of
                raising the first failure.

        Raises:
            RunError: if a run fails.
            ValueError: if there is no such cell, or there are no runs.
        """
        chosen = list(range(self.cells)) if cells is None else list(cells)
        jobs = [(cell, seed) for cell in self._checked(chosen) for seed in self._seeds(seeds)]
        if not jobs:
            raise ValueError("there is nothing to run: give at least one cell and one seed")
        total_s = sum(self._native.duration_s(cell) for cell in chosen) * (len(jobs) / len(chosen))
        with bar(self.id, total_s, len(jobs), progress) as report:
            results = Results(self, self._native.run(jobs, threads or os.cpu_count() or 1, report, self._controls))
        if not keep_failures:
            results._native.raise_failure()
        return results

    def _checked(self, cells: list[int]) -> list[int]:
        for cell in cells:
            if not 0 <= cell < self.cells:
                raise ValueError(f"there is no cell {cell}: the scenario has {self.cells}, from 0")
        return cells

    def _seeds(self, seeds: Union[int, Iterable[int], None]) -> list[int]:
        known = self.seeds
        if seeds is None:
            return known
        if isinstance(seeds, int):
            return list(range(known[0], known[0] + seeds))
        return list(seeds)

    @property
    def id(self) -> str:
        """The name of the file without folder and extension."""
        return self._native.id

    @property
    def title(self) -> str:
        """One line that says what the scenario shows."""
        return self._native.title

    @property
    def file(self) -> str:
        """The name of the text in errors."""
        return self._arguments[0]

    @property
    def text(self) -> str:
        """The text in TOML, without the settings."""
        return self._arguments[1]

    @property
    def settings(self) -> tuple[str, ...]:
        """The values that replace those of the text, each as ``KEY=VALUE``."""
        return self._arguments[3]

    @property
    def cells(self) -> int:
        """The number of cells of the sweep: combinations of the values of its axes."""
        return self._native.cells

    @property
    def axes(self) -> dict[str, list[str]]:
        """The axes of the sweep, with their values as they are written. The last axis varies fastest."""
        return dict(self._native.axes)

    @property
    def seeds(self) -> list[int]:
        """The seeds of each cell."""
        return self._native.seeds()

    @property
    def fingerprint(self) -> str:
        """A hash of the text, the settings, the source of controllers and this package's version, which identifies
        results."""
        if not self._controls:
            return self._native.fingerprint
        parts = [self._native.fingerprint, *(_source(make) for _, make in sorted(self._controls.items()))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def cell(self, number: int) -> dict[str, str]:
        """Returns the values of the axes in a cell.

        Raises:
            ValueError: if there is no such cell.
        """
        self._checked([number])
        return dict(zip(self.axes, self._native.labels(number)))

    def __repr__(self) -> str:
        return f"<Scenario {self.id}: {self.title} ({self.cells} cells)>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and (self._arguments, self._controls) == (other._arguments, other._controls)

    def __hash__(self) -> int:
        return hash(self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._arguments, self._controls)


def _restore(arguments: _Arguments, controls: dict[str, Any]) -> Scenario:
    file, text, fast, settings, cell, traces = arguments
    scenario = Scenario(file, text, fast=fast, settings=settings, cell=cell, traces=dict(traces))
    scenario._controls = controls
    return scenario


def _source(make: Callable[[], Control]) -> str:
    """Returns the source of a controller, or its name if it has none, as in an interactive session."""
    try:
        return inspect.getsource(make)
    except (OSError, TypeError):
        return repr(make)


def _read(source: Source) -> tuple[str, str]:
    """Returns the name and the text of a scenario."""
    if isinstance(source, Mapping):
        return "<dict>", _toml.document(source)
    if isinstance(source, str):
        if "\n" in source:
            return "<text>", source
        builtin = _native.builtin_text(source)
        if builtin is not None:
            return source, builtin
        if not source.endswith(".toml") and not os.path.exists(source):
            raise ScenarioError(source, 1, "", _no_such(source))
    return str(source), Path(source).read_text(encoding="utf-8")


def _no_such(name: str) -> str:
    close = difflib.get_close_matches(name, scenarios(), n=1)
    hint = f"did you mean `{close[0]}`?" if close else "manyflow.scenarios() lists them"
    return f"there is no such file, and no scenario `{name}` in this package; {hint}"
