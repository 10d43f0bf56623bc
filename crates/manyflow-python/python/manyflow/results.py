"""The results of runs: tables, figures and expectations."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from .scenario import Scenario


def _library(name: str, extra: str) -> Any:
    """Imports a library that the package does not require.

    Raises:
        ImportError: with the command that installs it.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is missing: pip install 'manyflow[{extra}]'", name=name) from error


class Table:
    """A table in Arrow's format. Libraries that know Arrow's PyCapsule interface read it as it is, without a copy:
    ``pyarrow.table(table)``, ``polars.DataFrame(table)``, ``duckdb.sql("FROM table")``. Rows of a sweep are read from its
    files while they are taken, some thousand at a time."""

    def __init__(self, native: Union[_native.Table, _native.Rows]) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """Returns a ``pyarrow.Table`` that shares the memory of this one."""
        return _library("pyarrow", "arrow").table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a ``pandas.DataFrame``. Columns of names are categorical."""
        _library("pandas", "pandas")
        return _library("pyarrow", "pandas").table(self).to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Returns a ``polars.DataFrame`` that shares the memory of this table."""
        return _library("polars", "polars").DataFrame(self)


@dataclass(frozen=True)
class Expectation:
    """A bound on a value, compared with the results.

    Attributes:
        what: The expectation in words.
        verdict: ``"met"``, ``"missed"``, ``"no value"``, or ``"not judged"`` if it concerns cells that were not run.
        value: The value in ``unit``, or ``None``. If every cell has to meet the bounds, the worst one.
        at_least: The lower bound, or ``None``.
        at_most: The upper bound, or ``None``.
        unit: The unit of the numbers; empty for ratios.
        note: The cell that has the value, or the reason why there is none.
        paper: The value in the paper, as text, or ``None``.
        source: The source of the bound.
    """

    what: str
    verdict: str
    value: Optional[float]
    at_least: Optional[float]
    at_most: Optional[float]
    unit: str
    note: str
    paper: Optional[str]
    source: str

    @property
    def met(self) -> bool:
        """Whether the value is within its bounds."""
        return self.verdict == "met"


@dataclass(frozen=True)
class Figure:
    """A figure of a scenario, drawn as SVG. Notebooks show it.

    Attributes:
        name: The name of its file, without extension.
        title: The title.
        svg: The picture.
    """

    name: str
    title: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


class Results:
    """The results of the runs of a scenario.

    Results can be pickled, with their scenario. Two tables hold them: the points of series over time (:meth:`series`; :meth:`to_arrow`, :meth:`to_pandas` and
    :meth:`to_polars` convert it), and a row of measures for each run (:meth:`measures`).
    """

    def __init__(self, scenario: Scenario, native: _native.Results) -> None:
        self.scenario = scenario
        self._native = native

    def series(self) -> Table:
        """Returns the points of the lines of all plots over time: a row for each point.

        The columns are ``cell`` (uint32), ``seed`` (uint64), ``plot`` (the name of the plot), ``time_s`` (seconds of
        simulated time; the end of an interval, or the time of an event), ``observable`` and ``subject`` (as in
        ``docs/scenarios.md``: ``received-rate`` of ``webrc/V``), ``channel`` (uint16 or null), ``unit`` (such as
        ``bit/s``) and ``value`` (float64).
        """
        return Table(self._native.series())

    def measures(self) -> Table:
        """Returns the measures: a row for each run.

        The columns are ``cell`` (uint32), ``seed`` (uint64), each axis of the sweep (its values as they are written),
        and each measure (float64, null if nothing was observed) in its unit: seconds, bit/s, packets and so on.
        """
        return Table(self._native.measures())

    def to_arrow(self) -> pyarrow.Table:
        """Returns :meth:`series` as a ``pyarrow.Table``."""
        return self.series().to_arrow()

    def to_pandas(self) -> pandas.DataFrame:
        """Returns :meth:`series` as a ``pandas.DataFrame``."""
        return self.series().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Returns :meth:`series` as a ``polars.DataFrame``."""
        return self.series().to_polars()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All measures, expectations and failures: the contents of ``summary.json`` of ``manyflow sim``."""
        summary: dict[str, Any] = json.loads(self._native.summary_json())
        return summary

    @property
    def expectations(self) -> list[Expectation]:
        """The expectations of the scenario with their verdicts."""
        names = Expectation.__dataclass_fields__
        return [Expectation(**{name: entry[name] for name in names}) for entry in self.summary["expectations"]]

    @property
    def passed(self) -> bool:
        """Whether all runs succeeded, and all expectations that could be judged are met."""
        return bool(self.summary["passed"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The runs that failed, each with ``cell``, ``seed``, ``message`` and the command ``replay`` that repeats it."""
        return list(self.summary["failures"])

    @property
    def transmissions(self) -> int:
        """The number of packets that all links delivered in all runs."""
        return self._native.transmissions

    @property
    def figures(self) -> list[Figure]:
        """The scenario's own figures, as ``manyflow sim`` draws them."""
        return [Figure(*figure) for figure in self._native.figures()]

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes the files of ``manyflow sim``: index.html, summary.json, CSV and SVG.

        Raises:
            OSError: if a file cannot be written.
        """
        self._native.write(os.fspath(folder))

    def plot(self, plot: Optional[str] = None, *, cell: Optional[int] = None, seed: Optional[int] = None, ax: Any = None) -> Any:
        """Draws the lines of a plot over time with matplotlib, and returns the axes.

        Args:
            plot: The name of the plot; by default the first one that has lines.
            cell: The cell; by default the first one of the results.
            seed: The seed; by default the first one of the cell.
            ax: Axes to draw on; by default new ones.

        Raises:
            ValueError: if there is no such plot, cell or seed.
        """
        compute = _library("pyarrow.compute", "plot")
        pyplot = _library("matplotlib.pyplot", "plot")
        points = self.to_arrow()
        for column, wanted in (("plot", plot), ("cell", cell), ("seed", seed)):
            points = _chosen(compute, points, column, wanted)
        axes = pyplot.subplots()[1] if ax is None else ax
        for name, line in _lines(compute, points):
            axes.plot(line["time_s"].to_numpy(), line["value"].to_numpy(), label=name)
        axes.set_xlabel("time (s)")
        names = {f"{what} ({unit})" if unit else what for what, unit in _pairs(points, "observable", "unit")}
        axes.set_ylabel(", ".join(sorted(names)))
        axes.set_title(self.scenario.title)
        axes.legend()
        return axes

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.scenario, self._native.outcomes())

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "not passed"
        return f"<Results of {self.scenario.id}: {len(self.summary['seeds'])} seeds, {verdict}>"


def _restore(scenario: Scenario, outcomes: str) -> Results:
    return Results(scenario, scenario._native.restore(outcomes))


def _pairs(points: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Returns the different combinations of values of some columns."""
    groups = points.select(columns).group_by(list(columns)).aggregate([]).to_pylist()
    return [tuple(group[column] for column in columns) for group in groups]


def _chosen(compute: Any, points: Any, column: str, wanted: Any) -> Any:
    """Returns the rows with this value in a column; by default with the value of the first row."""
    if not len(points):
        raise ValueError("the scenario has no plot over time: measures() has the numbers of its runs")
    wanted = points[column][0].as_py() if wanted is None else wanted
    # Comparisons of dictionaries are missing in some versions of pyarrow.
    values = compute.cast(points[column], "string") if column == "plot" else points[column]
    rows = points.filter(compute.equal(values, wanted))
    if not len(rows):
        raise ValueError(f"there is no {column} {wanted!r} in the results")
    return rows


def _lines(compute: Any, points: Any) -> list[tuple[str, Any]]:
    """Returns the points of each line with its name."""
    columns = ("observable", "subject", "channel")
    names = sorted(_pairs(points, *columns), key=str)
    texts = {column: compute.cast(points[column], "string") for column in columns[:2]}
    several = len({what for what, _, _ in names}) > 1
    lines = []
    for what, subject, channel in names:
        rows = compute.and_(compute.equal(texts["observable"], what), compute.equal(texts["subject"], subject))
        own = compute.is_null(points["channel"]) if channel is None else compute.equal(points["channel"], channel)
        name = subject if channel is None else f"{subject}, channel {channel}"
        lines.append((f"{what} of {name}" if several else name, points.filter(compute.and_(rows, own))))
    return lines
