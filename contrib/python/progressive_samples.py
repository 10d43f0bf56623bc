#!/usr/bin/env python3
"""A time series as units of a layered stream: coarse samples first, so that every prefix decodes.

    progressive_samples.py encode [--units N] [--rate UNITS_PER_S]   writes units to standard output
    progressive_samples.py decode                                    reads units, prints the error of each
    progressive_samples.py --self-test                               runs the examples of this file

Units in a pipe are preceded by their length, in 4 bytes in network order. Usage with manyflow:

    manyflow stream send --program 'progressive_samples.py encode --rate 10' ...
    manyflow stream recv --program 'progressive_samples.py decode' ...

A unit begins with its number, in 4 bytes. SAMPLES samples of 2 bytes follow: every 512th first, then
the ones halfway between, and so on. Needs nothing besides Python's standard library.
"""

import argparse
import doctest
import math
import struct
import sys
import time
from typing import BinaryIO, Iterator

SAMPLES = 1024
UNIT_BYTES_MAX = 64 << 20


def samples(number: int) -> list[int]:
    """The samples of a unit: a tone whose pitch depends on the number of the unit."""
    step = 0.02 + number % 100 * 0.001
    return [round(10_000 * math.sin(at * step)) for at in range(SAMPLES)]


def order() -> list[int]:
    """The places of the samples, coarse first.

    >>> order()[:7]
    [0, 512, 256, 768, 128, 384, 640]
    >>> sorted(order()) == list(range(SAMPLES))
    True
    """
    places, step = [0], SAMPLES // 2
    while step:
        places += range(step, SAMPLES, 2 * step)
        step //= 2
    return places


def encode(number: int) -> bytes:
    """A unit: its number, and its samples in order.

    >>> len(encode(3))
    2052
    """
    series = samples(number)
    return struct.pack(f">I{SAMPLES}h", number, *(series[at] for at in order()))


def decode(prefix: bytes) -> tuple[int, list[int]]:
    """The number of a unit, and its samples; an unknown sample repeats the known one before it.

    >>> decode(encode(3)) == (3, samples(3))
    True
    >>> number, series = decode(encode(3)[:9])
    >>> number, series[0] == series[511], series[512] == samples(3)[512]
    (3, True, True)
    """
    (number,) = struct.unpack_from(">I", prefix)
    known = struct.unpack_from(f">{(len(prefix) - 4) // 2}h", prefix, 4)
    series: list[int | None] = [None] * SAMPLES
    for at, sample in zip(order(), known):
        series[at] = sample
    last, decoded = 0, []
    for sample in series:
        last = last if sample is None else sample
        decoded.append(last)
    return number, decoded


def rms_error(prefix: bytes) -> float:
    """The error of a prefix, which decreases with its length.

    >>> errors = [rms_error(encode(3)[:length]) for length in (6, 100, 500, 1000, 2052)]
    >>> errors == sorted(errors, reverse=True), errors[-1]
    (True, 0.0)
    """
    number, decoded = decode(prefix)
    squares = ((a - b) ** 2 for a, b in zip(samples(number), decoded))
    return math.sqrt(sum(squares) / SAMPLES)


def write_units(pipe: BinaryIO, units: int | None, rate: float | None) -> None:
    """Writes units with their lengths, at a rate or as fast as they are read."""
    number = 0
    while units is None or number < units:
        unit = encode(number)
        pipe.write(struct.pack(">I", len(unit)) + unit)
        pipe.flush()
        number += 1
        if rate:
            time.sleep(1 / rate)


def read_units(pipe: BinaryIO) -> Iterator[bytes]:
    """The units of a pipe.

    >>> import io
    >>> pipe = io.BytesIO()
    >>> write_units(pipe, 2, None)
    >>> pipe.seek(0)
    0
    >>> list(read_units(pipe)) == [encode(0), encode(1)]
    True
    """
    while len(header := pipe.read(4)) == 4:
        (length,) = struct.unpack(">I", header)
        if length > UNIT_BYTES_MAX:
            sys.exit(f"a unit of {length} bytes: write before each unit its length in 4 bytes, in network order")
        unit = pipe.read(length)
        if len(unit) < length:
            sys.exit("the input ends in the middle of a unit")
        yield unit


def print_errors(pipe: BinaryIO) -> None:
    """Prints a line for each unit. A unit without a sample has no error to print."""
    for unit in read_units(pipe):
        if len(unit) < 6:
            print(f"a unit of {len(unit)} bytes: no sample", flush=True)
        else:
            print(f"unit {decode(unit)[0]}: {len(unit)} bytes, RMS error {rms_error(unit):.1f}", flush=True)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description="A time series as units of a layered stream.")
    parser.add_argument("command", nargs="?", choices=["encode", "decode"])
    parser.add_argument("--units", type=int, help="the number of units (default: without end)")
    parser.add_argument("--rate", type=float, help="units per second (default: as fast as they are read)")
    parser.add_argument("--self-test", action="store_true", help="run the examples of this file")
    options = parser.parse_args()
    if options.self_test:
        return min(doctest.testmod().failed, 1)
    if options.command == "encode":
        try:
            write_units(sys.stdout.buffer, options.units, options.rate)
        except BrokenPipeError:
            sys.stderr.close()  # the reader has ended
    elif options.command == "decode":
        print_errors(sys.stdin.buffer)
    else:
        parser.error("choose encode, decode or --self-test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
