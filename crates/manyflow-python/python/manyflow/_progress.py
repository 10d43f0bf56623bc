"""The progress of runs: a bar in terminals and notebooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable, Optional

Report = Callable[[float, int], None]


def _is_seen() -> bool:
    """Returns whether a person is likely to look at a bar: on a terminal or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def bar(title: str, total_s: float, runs: int, shown: Optional[bool]) -> Iterator[Optional[Report]]:
    """Shows a bar of simulated seconds; yields the function that moves it, or nothing if it is not shown."""
    if not (_is_seen() if shown is None else shown):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total_s, desc=title, bar_format="{desc} {percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]") as line:

        def report(simulated_s: float, ended: int) -> None:
            line.set_postfix_str(f"{ended} of {runs} runs", refresh=False)
            line.update(min(simulated_s, total_s) - line.n)

        report(0.0, 0)
        yield report


@contextmanager
def counter(title: str, total: int, done: int, shown: Optional[bool]) -> Iterator[Callable[[], object]]:
    """Shows a bar of cells; yields the function that counts one."""
    if not (_is_seen() if shown is None else shown):
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, initial=done, desc=title, unit="cell") as line:
        yield line.update
