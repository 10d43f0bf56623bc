"""``python -m manyflow evaluate own_controller.py``: evaluates a controller in Python as ``manyflow evaluate`` does."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from .controller import Controller
from .evaluation import Subject, evaluate
from .results import Results


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(prog="manyflow", description="The command of the package.")
    command = parser.add_subparsers(required=True, metavar="evaluate").add_parser(
        "evaluate",
        help="evaluate a congestion control by the criteria of RFC 9743",
        epilog="Example: python3 -m manyflow evaluate own_controller.py --fast",
    )
    command.add_argument("protocol", help="a protocol such as cubic, or a file with a subclass of manyflow.Controller")
    command.add_argument("--fast", action="store_true", help="shorter runs and fewer cells")
    command.add_argument("--out", type=Path, default=Path("results"), help="the folder for results [results]")
    command.add_argument("--threads", type=int, help="the number of threads [the number of cores]")
    options = parser.parse_args(arguments)
    try:
        subject = _controller(Path(options.protocol)) if options.protocol.endswith(".py") else options.protocol
        evaluation = evaluate(subject, fast=options.fast, threads=options.threads, on_result=_print)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = options.out / f"evaluate-{evaluation.name}"
    evaluation.write(folder)
    print(f"{evaluation.table}\n  -> {folder / 'index.html'}")
    return 0 if evaluation.passed else 1


def _print(results: Results) -> None:
    lines = "".join(f"\n  {line}" for line in results._native.lines())
    print(f"{results.scenario.id}: {results.scenario.title}{lines}\n", flush=True)


def _controller(file: Path) -> Subject:
    """Returns the controller of a file.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it has no controller, or several.
    """
    file.open("rb").close()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == file.stem]
    found = [value for value in own if issubclass(value, Controller)]
    if len(found) != 1:
        names = ", ".join(value.__name__ for value in found) or "none"
        raise ValueError(f"{file}: a file for `evaluate` has one subclass of manyflow.Controller, and this one has {names}")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
