"""Rate control for communication among many: scenarios, sweeps, controllers, files to many receivers, and messages over an overlay.

    import manyflow as mf

    scenario = mf.Scenario.load("webrc-9").with_({"run.duration": "60 s"})
    results = scenario.run(seeds=2, cells=[0])
    print(results.measures().to_pandas())
    for expectation in results.expectations:
        print(expectation.verdict, expectation.what)

Everything that a scenario shows is computed by the code that ships, in Rust; Python only holds it. ``manyflow.live``
sends and receives files, and has clients of a running daemon. The repository's ``docs/python.md`` is the manual, and ``docs/scenarios.md`` lists the keys of scenarios.
"""

from . import live
from ._native import Moment, __version__
from .controller import Controller
from .errors import LiveError, ManyflowError, RunError, ScenarioError, TransferError
from .evaluation import Evaluation, evaluate
from .results import Expectation, Results, Table
from .scenario import Scenario, scenarios
from .sweep import Sweep, SweepError, sweep

__all__ = [
    "Controller",
    "Evaluation",
    "Expectation",
    "LiveError",
    "ManyflowError",
    "Moment",
    "Results",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Sweep",
    "SweepError",
    "Table",
    "TransferError",
    "__version__",
    "evaluate",
    "live",
    "scenarios",
    "sweep",
]
