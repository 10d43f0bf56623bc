"""Executes the notebooks of this project. See scripts/notebooks."""

import multiprocessing
import os
import pathlib
import sys
import tempfile
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


def run_forked(path, output):
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    os.chdir(path.parent)
    run_cells(path.name)


def run_short(path):
    """Runs a notebook in a process of its own, and shows its output only if it fails."""
    with tempfile.TemporaryFile() as output:
        process = multiprocessing.get_context("fork").Process(target=run_forked, args=(path, output))
        process.start()
        process.join(SHORT_MAX_S)
        if process.exitcode == 0:
            return
        process.kill()
        output.seek(0)
        reason = f"not executed in {SHORT_MAX_S} s" if process.exitcode is None else "failed"
        sys.exit(f"{output.read().decode()}\n{path}: {reason}")


def load_what_notebooks_share():
    """Imports what takes most of a short notebook's time, so that forked processes have it."""
    import IPython.terminal.interactiveshell
    import matplotlib.pyplot


def run_whole(path, out):
    from nbclient import NotebookClient

    notebook = read(path)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=CELL_MAX_S, kernel_name="python3", resources=resources).execute()
    nbformat.write(notebook, out / path.name)


def main():
    form = sys.argv[1]
    out = pathlib.Path("target/notebooks")
    out.mkdir(parents=True, exist_ok=True)
    notebooks = sorted(pathlib.Path("notebooks").glob("*.ipynb"))
    if not notebooks:
        sys.exit("notebooks/ has no notebook")
    if form == "short":
        load_what_notebooks_share()
    for path in notebooks:
        began = time.monotonic()
        if form == "short":
            run_short(path)
        else:
            run_whole(path, out)
        print(f"{path}: executed in {time.monotonic() - began:.1f} s", flush=True)


main()
