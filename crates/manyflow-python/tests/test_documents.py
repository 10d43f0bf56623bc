"""The Python examples of documents run as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import REPOSITORY

# The daemon of the examples that need one; test_live.py runs them.
LIVE = "127.0.0.1:4222"
DOCUMENTS = ["README.md", "crates/manyflow-python/README.md", "docs/python.md"]


def blocks(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (REPOSITORY / document).read_text(), re.S | re.M)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_examples_of_a_document_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    # A document is one program: later blocks use the names of earlier ones.
    names: dict[str, object] = {"__name__": "example"}
    found = blocks(document)
    assert found, f"{document} has no example in Python"
    for block in found:
        if LIVE in block:
            continue
        exec(compile(block, document, "exec"), names)
