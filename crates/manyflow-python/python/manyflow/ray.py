"""Sweeps on Ray."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait as wait_for
from typing import Any, Optional

from .results import _library


class RayExecutor(Executor):
    """An executor on a cluster of Ray, for :func:`manyflow.sweep`. Each call is a task of Ray, which runs as many at a
    time as the cluster has CPUs, and runs a task again if its worker is lost.

    Args:
        address: The address of the cluster; by default the one that the program is connected to, or a local one.
        retries: How often Ray runs a task again.
    """

    def __init__(self, address: Optional[str] = None, retries: int = 3) -> None:
        ray = _library("ray", "ray")
        if not ray.is_initialized():
            ray.init(address=address)
        self._cancel = ray.cancel
        self._run = ray.remote(max_retries=retries)(_call)
        self._futures: list[Future[Any]] = []
        self._tasks: list[Any] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Runs a call in a process of the cluster."""
        task = self._run.remote(call, arguments, named)
        future: Future[Any] = task.future()
        self._tasks.append(task)
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for the calls if `wait`, and cancels those that have not begun if `cancel_futures`."""
        if cancel_futures:
            for task in self._tasks:
                self._cancel(task)
        if wait:
            wait_for(self._futures)


def _call(call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return call(*arguments, **named)
