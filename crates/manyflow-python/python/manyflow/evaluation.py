"""Evaluation of congestion controls by the criteria of RFC 9743."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from . import _native
from .controller import Control
from .results import Results
from .scenario import Scenario

Subject = Union[str, Callable[[], Control]]


@dataclass(frozen=True)
class Evaluation:
    """The results of the scenarios for one protocol or controller, in the order of the RFC's criteria.

    Attributes:
        name: The name of the protocol or controller.
        results: The results of each scenario; ``results[0].expectations`` has the verdicts of the first.
    """

    name: str
    results: list[Results]
    _is_control: bool

    @property
    def passed(self) -> bool:
        """Whether all expectations are met. The RFC's criteria are to be weighed: even CUBIC misses some."""
        return all(result.passed for result in self.results)

    @property
    def table(self) -> str:
        """A table with a line for each scenario."""
        return self._verdicts(None)

    def write(self, folder: Union[str, os.PathLike[str]]) -> None:
        """Writes ``index.html``, ``verdicts.csv`` and ``verdicts.tex`` (a table for LaTeX), and a folder for each scenario.

        Raises:
            OSError: if a file cannot be written.
        """
        for result in self.results:
            result.write(Path(folder) / result.scenario.id)
        self._verdicts(os.fspath(folder))

    def _verdicts(self, folder: Optional[str]) -> str:
        results = [result._native for result in self.results]
        return _native.evaluation_verdicts(self.name, self._is_control, results, folder)

    def __str__(self) -> str:
        return self.table

    def __repr__(self) -> str:
        return f"<Evaluation of {self.name}: {len(self.results)} scenarios, {'passed' if self.passed else 'not passed'}>"


def evaluate(
    subject: Subject,
    *,
    fast: bool = False,
    only: Optional[Collection[str]] = None,
    threads: Optional[int] = None,
    progress: Optional[bool] = None,
    on_result: Callable[[Results], object] = lambda result: None,
) -> Evaluation:
    """Runs the scenarios of RFC 9743's criteria with a protocol or controller.

    Args:
        subject: The name of a protocol, such as ``"cubic"``, ``"bbr3"`` or ``"webrc"``; or the class of a controller
            (see :class:`manyflow.Controller`), or another callable that makes one for each connection.
        fast: Whether to use shorter runs and fewer cells.
        only: The ids of the scenarios to run; by default all.
        threads: The number of threads; by default the number of cores.
        progress: Whether to show a bar; by default on terminals and in notebooks.
        on_result: Called with the results of each scenario when it has been run.

    Raises:
        ValueError: if there is no such protocol or scenario.
        RunError: if a run fails.
    """
    name, controls = _named(subject)
    is_control = bool(controls)
    texts = _native.evaluation_texts(name, is_control, fast)
    known = [Path(file).stem for file, _ in texts]
    for wanted in only or ():
        if wanted not in known:
            raise ValueError(f"there is no scenario `{wanted}` for {name}: known are {', '.join(known)}")
    results = []
    for file, text in texts:
        scenario = Scenario(file, text, fast=fast)
        if only is not None and scenario.id not in only:
            continue
        scenario._controls = controls
        results.append(scenario.run(threads=threads, progress=progress))
        on_result(results[-1])
    return Evaluation(name, results, is_control)


def _named(subject: Subject) -> tuple[str, dict[str, Callable[[], Control]]]:
    """Returns the name of a subject, and the controls that its runs need."""
    if isinstance(subject, str):
        return subject, {}
    name = str(getattr(subject, "__name__", type(subject).__name__))
    name = re.sub(r"[^\w-]", "-", name)
    return name, {name: subject}
