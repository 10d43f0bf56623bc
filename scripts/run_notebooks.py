"""Executes the notebooks of this project. See scripts/notebooks."""

import os
import pathlib
import subprocess
import sys
import time

import nbformat

# A cell of a whole notebook takes some minutes.
CELL_MAX_S = 3600
SHORT_MAX_S = 300


def read(path):
    notebook = nbformat.read(path, as_version=4)
    if any(cell.get("outputs") for cell in notebook.cells):
        sys.exit(f"{path}: has outputs; clear them before a commit")
    return notebook


def run_cells(path):
    """Runs the cells in this process, which needs no kernel and no sockets to it."""
    from IPython.terminal.interactiveshell import TerminalInteractiveShell

    shell = TerminalInteractiveShell.instance(simple_prompt=True, colors="nocolor")
    code = (cell for cell in read(path).cells if cell.cell_type == "code")
    for number, cell in enumerate(code, 1):
        if not shell.run_cell(cell.source).success:
            sys.exit(f"{path}: code cell {number} failed")


def run_short(path):
    """Runs a notebook in a process of its own, and shows its output only if it fails."""
    command = [sys.executable, os.path.abspath(__file__), "cells", path.name]
    try:
        ended = subprocess.run(
            command, cwd=path.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SHORT_MAX_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        sys.exit(f"{(error.output or b'').decode()}\n{path}: not executed in {SHORT_MAX_S} s")
    if ended.returncode != 0:
        sys.exit(ended.stdout.decode())


def run_whole(path, out):
    from nbclient import NotebookClient

    notebook = read(path)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=CELL_MAX_S, kernel_name="python3", resources=resources).execute()
    nbformat.write(notebook, out / path.name)


def main():
    form = sys.argv[1]
    if form == "cells":
        run_cells(pathlib.Path(sys.argv[2]))
        return
    out = pathlib.Path("target/notebooks")
    out.mkdir(parents=True, exist_ok=True)
    notebooks = sorted(pathlib.Path("notebooks").glob("*.ipynb"))
    if not notebooks:
        sys.exit("notebooks/ has no notebook")
    for path in notebooks:
        began = time.monotonic()
        if form == "short":
            run_short(path)
        else:
            run_whole(path, out)
        print(f"{path}: executed in {time.monotonic() - began:.1f} s", flush=True)


main()
