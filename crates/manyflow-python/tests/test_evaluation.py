"""Evaluation of protocols and controllers by the criteria of RFC 9743."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import REPOSITORY

import manyflow as mf
from manyflow.__main__ import main
from manyflow._native import evaluation_texts


class FixedRate(mf.Controller):
    """Sends at 10 Mbit/s, whatever happens."""

    window = 10_000.0
    rate = 10e6

    def on_loss(self, moment: mf.Moment) -> None:
        pass

    on_timeout = on_loss


def verdicts(evaluation: mf.Evaluation) -> list[str]:
    return [expectation.verdict for result in evaluation.results for expectation in result.expectations]


def test_a_fixed_rate_fails_where_cubic_backs_off(tmp_path: Path) -> None:
    heard: list[mf.Results] = []
    fixed = mf.evaluate(FixedRate, fast=True, only=["collapse"], on_result=heard.append)
    cubic = mf.evaluate("cubic", fast=True, only=["collapse"])
    assert verdicts(cubic) == ["met"] * 3 and cubic.passed
    assert verdicts(fixed)[0] == "missed" and not fixed.passed
    assert heard == fixed.results and "MISSED" in str(fixed)
    fixed.write(tmp_path)
    assert "FixedRate by the criteria of RFC 9743" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "collapse" / "index.html").exists()
    assert r"\toprule" in (tmp_path / "verdicts.tex").read_text()
    assert len((tmp_path / "verdicts.csv").read_text().splitlines()) == 4


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean `cubic`"):
        mf.evaluate("cubc")
    with pytest.raises(ValueError, match="no scenario `colapse` for cubic: known are collapse, "):
        mf.evaluate("cubic", only=["colapse"])


def test_the_module_refuses_a_file_without_one_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two_controllers.py"
    file.write_text("import manyflow\nclass A(manyflow.Controller): ...\nclass B(A): ...\n")
    assert main(["evaluate", str(file)]) == 2
    assert "one subclass of manyflow.Controller, and this one has A, B" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "none.py")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_example_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def first(name: str, is_control: bool, fast: bool) -> list[tuple[str, str]]:
        return evaluation_texts(name, is_control, fast)[:1]

    monkeypatch.setattr("manyflow._native.evaluation_texts", first)
    assert main(["evaluate", str(REPOSITORY / "examples/evaluate_own.py"), "--fast", "--out", str(tmp_path)]) == 0
    assert "Aimd by the criteria of RFC 9743: 3 of 3 expectations are met" in capsys.readouterr().out
    assert (tmp_path / "evaluate-Aimd" / "index.html").exists()
