"""Runs and their results: tables, expectations, figures and failures."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pandas
import polars
import pyarrow
import pytest

import manyflow as mf


def test_series_have_the_documented_columns(small: mf.Scenario) -> None:
    results = small.run(seeds=2, threads=2)
    table = results.to_arrow()
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    columns = {
        "cell": pyarrow.uint32(),
        "seed": pyarrow.uint64(),
        "plot": text,
        "time_s": pyarrow.float64(),
        "observable": text,
        "subject": text,
        "channel": pyarrow.uint16(),
        "unit": text,
        "value": pyarrow.float64(),
    }
    assert dict(zip(table.schema.names, table.schema.types)) == columns
    assert table.num_rows == 20
    last = table.slice(19).to_pylist()[0]
    assert last.pop("value") == pytest.approx(1e6, rel=0.01)
    assert last == {
        "cell": 0, "seed": 2, "plot": "rates", "time_s": 10.0, "observable": "received-rate", "subject": "cbr/R",
        "channel": None, "unit": "bit/s",
    }  # fmt: skip


def test_pandas_polars_and_arrow_agree(small: mf.Scenario) -> None:
    results = small.run(threads=1)
    frame, table, other = results.to_pandas(), results.to_arrow(), results.to_polars()
    assert isinstance(frame, pandas.DataFrame) and isinstance(other, polars.DataFrame)
    assert frame["value"].tolist() == table["value"].to_pylist() == other["value"].to_list()
    assert frame["subject"].unique().tolist() == ["cbr/R"] == other["subject"].unique().to_list()


def test_a_table_shares_its_memory_with_arrow(small: mf.Scenario) -> None:
    series = small.run(threads=1).series()
    addresses = [pyarrow.table(series)["value"].chunk(0).buffers()[1].address for _ in range(2)]
    assert addresses[0] == addresses[1]
    assert pyarrow.schema(series).names == pyarrow.table(series).schema.names


def test_measures_have_a_row_for_each_run(small: mf.Scenario) -> None:
    swept = small.with_({"sweep.sessions.cbr.cbr.rate": ["1 Mbit/s", "4 Mbit/s"]})
    rows = swept.run(seeds=[7, 9], threads=2).measures().to_arrow().to_pylist()
    assert [(row["cell"], row["seed"]) for row in rows] == [(0, 7), (0, 9), (1, 7), (1, 9)]
    assert [row["sessions.cbr.cbr.rate"] for row in rows[1:3]] == ["1 Mbit/s", "4 Mbit/s"]
    assert rows[0]["rate"] == pytest.approx(1e6, rel=0.01) and rows[3]["rate"] == pytest.approx(2e6, rel=0.01)


def test_expectations_have_values_and_verdicts(small: mf.Scenario) -> None:
    results = small.run(threads=1)
    (met,) = results.expectations
    assert results.passed and met.met and met.unit == "bit/s" and met.at_least == 0.99e6 and met.at_most is None
    missed = small.with_({"links.rate": "0.5 Mbit/s"}).run(threads=1)
    assert not missed.passed and missed.expectations[0].verdict == "missed"


def test_threads_do_not_change_results(small: mf.Scenario) -> None:
    tables = [small.run(seeds=5, threads=threads).to_arrow() for threads in (1, 3)]
    assert tables[0] == tables[1]


def test_the_files_are_those_of_the_binary(small: mf.Scenario, tmp_path: Path) -> None:
    results = small.run(threads=1)
    results.write(tmp_path / "results")
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"index.html", "measures.csv", "rates.csv", "summary.json"} < names
    assert json.loads((tmp_path / "results/summary.json").read_text()) == results.summary
    (figure,) = results.figures
    assert (tmp_path / f"results/{figure.name}.svg").read_text() == figure.svg
    # A plot shows the first seed only.
    assert len((tmp_path / "results/rates.csv").read_text().splitlines()) == 11


def test_a_plot_has_a_line_for_each_subject(small: mf.Scenario) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    results = small.run(threads=1)
    axes = results.plot(seed=2)
    assert [line.get_label() for line in axes.get_lines()] == ["cbr/R"]
    assert axes.get_ylabel() == "received-rate (bit/s)"
    for wrong in ({"plot": "none"}, {"seed": 3}, {"cell": 1}):
        with pytest.raises(ValueError, match="there is no"):
            results.plot(**wrong)


def test_a_run_that_fails_is_raised_or_kept(small: mf.Scenario) -> None:
    overfull = small.with_({"run.carried-packets-max": 1, "links.delay": "1 s"})
    with pytest.raises(mf.RunError, match="the links carry more than 1 packets") as caught:
        overfull.run(seeds=[4], threads=1)
    assert (caught.value.cell, caught.value.seed) == (0, 4)
    kept = overfull.run(seeds=[4], threads=1, keep_failures=True)
    assert not kept.passed and kept.failures[0]["message"] == caught.value.message


def test_runs_that_do_not_exist_are_refused(small: mf.Scenario) -> None:
    for wrong in ({"cells": [1]}, {"cells": []}, {"seeds": 0}):
        with pytest.raises(ValueError, match=r"no cell 1|nothing to run"):
            small.run(**wrong)


def test_other_threads_run_python_meanwhile(endless: mf.Scenario) -> None:
    seen: list[str] = []

    class Enough(Exception):
        pass

    def report(simulated_s: float, runs: int) -> None:
        if len(seen) >= 3:
            raise Enough

    def count() -> None:
        for tick in range(3):
            seen.append(str(tick))

    threading.Timer(0.05, count).start()
    with pytest.raises(Enough):
        endless._native.run([(0, 1)], 1, report)


def test_a_missing_library_is_named_with_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['polars'] = None\n"
        "from conftest import SMALL; import manyflow\n"
        "manyflow.Scenario.load(SMALL).run(threads=1).to_polars()"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert "ImportError: polars is missing: pip install 'manyflow[polars]'" in ended.stderr


def test_results_can_be_pickled(small: mf.Scenario) -> None:
    results = small.run(seeds=3, threads=2)
    copied = pickle.loads(pickle.dumps(results))
    assert copied.to_arrow() == results.to_arrow()
    assert copied.measures().to_arrow() == results.measures().to_arrow()
    assert copied.summary == results.summary and copied.transmissions == results.transmissions
    assert copied.figures == results.figures
    restore, (_, outcomes) = results.__reduce__()
    with pytest.raises(ValueError, match="these results cannot be read: they are those of another scenario"):
        restore(mf.Scenario.load("webrc-9"), outcomes)
    with pytest.raises(ValueError, match="these results cannot be read"):
        restore(small, outcomes[:-9])


def test_failed_runs_are_pickled_with_their_messages(small: mf.Scenario) -> None:
    failing = small.with_({"run.carried-packets-max": 1, "links.delay": "1 s"})
    results = failing.run(seeds=2, keep_failures=True)
    assert results.failures
    assert pickle.loads(pickle.dumps(results)).failures == results.failures
