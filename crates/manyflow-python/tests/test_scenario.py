"""Reading and changing scenarios, and their errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from conftest import REPOSITORY, SMALL, toml_tables

import manyflow as mf


def test_every_scenario_of_the_repository_is_in_the_package() -> None:
    files = sorted(path.stem for path in (REPOSITORY / "scenarios").glob("*.toml"))
    assert sorted(mf.scenarios()) == files and "webrc-9" in files


def test_an_id_a_path_a_text_and_a_dict_give_the_same_runs(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    sources = [path, str(path), SMALL, toml_tables(SMALL)]
    tables = [mf.Scenario.load(source).run(threads=1).to_arrow() for source in sources]
    assert len(tables[0]) == 20 and all(table == tables[0] for table in tables)
    assert mf.Scenario.load("webrc-9").title == "WEBRC and TCP share a link"


def test_the_short_form_has_its_own_values() -> None:
    assert len(mf.Scenario.load("webrc-9").seeds) == 16
    assert len(mf.Scenario.load("webrc-9", fast=True).seeds) == 2


def test_settings_replace_values_and_leave_the_scenario_as_it_is(small: mf.Scenario) -> None:
    changed = small.with_({"links.rate": "5 Mbit/s"}).with_(run={"seeds": 3}, sessions={"cbr": {"start": "1.5 s"}})
    assert changed.settings == ('links.rate="5 Mbit/s"', "run.seeds=3", 'sessions.cbr.start="1.5 s"')
    assert (small.seeds, changed.seeds) == ([1, 2], [1, 2, 3])
    assert changed.fingerprint != small.fingerprint == mf.Scenario.load(SMALL).fingerprint


def test_a_sweep_makes_cells(small: mf.Scenario) -> None:
    swept = small.with_({"sweep.links.rate": ["1 Mbit/s", "2 Mbit/s"], "sweep.sessions.cbr.cbr.rate": ["8 kbit/s"]})
    assert swept.cells == 2
    assert swept.cell(1) == {"links.rate": "2 Mbit/s", "sessions.cbr.cbr.rate": "8 kbit/s"}
    with pytest.raises(ValueError, match="no cell 2"):
        swept.cell(2)


def test_an_error_names_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(SMALL.replace('delay = "20 ms"', 'delai = "20 ms"'))
    with pytest.raises(mf.ScenarioError) as caught:
        mf.Scenario.load(path)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(path), 8, "links.bottleneck.delai")
    assert error.problem == "there is no key `delai`; did you mean `delay`?"
    assert str(error) == f"{path}:8: `links.bottleneck.delai`: {error.problem}"
    assert isinstance(error, ValueError) and isinstance(error, mf.ManyflowError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_in_a_setting_names_the_setting(small: mf.Scenario) -> None:
    with pytest.raises(mf.ScenarioError) as caught:
        small.with_({"run.seeds": 3, "links.rate": "5 parsecs"})
    assert (caught.value.file, caught.value.line, caught.value.key) == ("with_", 2, "links.bottleneck.rate")


def test_an_error_in_a_dict_names_the_key() -> None:
    tables = toml_tables(SMALL)
    tables["links"][0]["rate"] = "fast"
    with pytest.raises(mf.ScenarioError) as caught:
        mf.Scenario.load(tables)
    assert (caught.value.file, caught.value.key) == ("<dict>", "links.bottleneck.rate")


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(mf.ScenarioError, match="did you mean `webrc-9`"):
        mf.Scenario.load("webrc-99")
    with pytest.raises(FileNotFoundError):
        mf.Scenario.load("missing.toml")


def test_a_value_that_toml_cannot_have_is_refused(small: mf.Scenario) -> None:
    with pytest.raises(TypeError, match="no values of type bytes"):
        small.with_({"title": b"bytes"})


def test_texts_keep_every_character() -> None:
    tables = toml_tables(SMALL) | {"title": 'quotes "\\" \u007f \n \t ü \U0001f600'}
    assert mf.Scenario.load(tables).title == tables["title"]


def test_a_scenario_can_be_sent_to_another_process(small: mf.Scenario) -> None:
    changed = small.with_({"run.seeds": 1})
    copy = pickle.loads(pickle.dumps(changed))
    assert copy == changed and hash(copy) == hash(changed) and copy.seeds == [1]


def test_a_pickled_scenario_has_its_rate_traces(tmp_path: Path) -> None:
    (tmp_path / "two.trace").write_text("3\n6\n")
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    traced = mf.Scenario.load(path).with_({"links.rate": {"trace": "two.trace"}})
    (tmp_path / "two.trace").unlink()
    restored = pickle.loads(pickle.dumps(traced))
    assert restored == traced and restored.fingerprint == traced.fingerprint
    assert restored.with_(run={"seeds": 1}).run(threads=1).to_arrow().num_rows > 0
    with pytest.raises(mf.ScenarioError, match="two.trace"):
        mf.Scenario.load(path).with_({"links.rate": {"trace": "two.trace"}})
