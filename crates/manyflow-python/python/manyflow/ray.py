"""Sweeps on Ray."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Optional

from .results import _library


class RayExecutor(Executor):
    """An executor on a cluster of Ray, for :func:`manyflow.sweep`: a :class:`ray.util.multiprocessing.Pool` with the
    interface of :mod:`concurrent.futures`.

    Args:
        processes: The number of processes; by default one for each CPU of the cluster.
        address: The address of the cluster; by default the one that the program is connected to, or a local one.
    """

    def __init__(self, processes: Optional[int] = None, address: Optional[str] = None) -> None:
        self._pool = _library("ray.util.multiprocessing", "ray").Pool(processes, ray_address=address)

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Runs a call in a process of the cluster."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._pool.apply_async(call, arguments, named, future.set_result, future.set_exception)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes, after their calls if `wait`."""
        if wait and not cancel_futures:
            self._pool.close()
            self._pool.join()
        else:
            self._pool.terminate()
