"""The exceptions of this package."""

from __future__ import annotations


class ManyflowError(Exception):
    """The base of all exceptions that this package defines."""


class ScenarioError(ManyflowError, ValueError):
    """A scenario cannot be read, with the place of the error.

    Attributes:
        file: The path, the id or ``<text>``; ``with_`` if a setting is wrong.
        line: The number of the line, from 1; for settings, the number of the setting.
        key: The dotted key, such as ``links.bottleneck.delay``; empty if the error concerns the whole file.
        problem: The message without its place.
    """

    def __init__(self, file: str, line: int, key: str, problem: str) -> None:
        super().__init__(file, line, key, problem)
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        key = f"`{self.key}`: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.problem}"


class RunError(ManyflowError, RuntimeError):
    """A run failed, for example because its network carries too many packets.

    Attributes:
        cell: The number of the cell of the scenario's sweep.
        seed: The seed.
        message: The reason.
        replay: The command that repeats the run.
    """

    def __init__(self, cell: int, seed: int, message: str, replay: str) -> None:
        super().__init__(cell, seed, message, replay)
        self.cell = cell
        self.seed = seed
        self.message = message
        self.replay = replay

    def __str__(self) -> str:
        return f"cell {self.cell}, seed {self.seed}: {self.message}; to repeat it: {self.replay}"


class LiveError(ManyflowError, RuntimeError):
    """A client of the overlay has no connection, or cannot do what it was asked to do.

    Attributes:
        address: The daemon's address.
        problem: The message.
    """

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(address, problem)
        self.address = address
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class TransferError(ManyflowError, RuntimeError):
    """Files cannot be sent or received.

    Attributes:
        subject: The file, address or session that the error concerns.
        problem: The message.
    """

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(subject, problem)
        self.subject = subject
        self.problem = problem

    def __str__(self) -> str:
        return self.problem if self.subject in self.problem else f"{self.subject}: {self.problem}"
