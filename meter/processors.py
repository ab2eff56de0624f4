"""The race's share of the processors, on a machine on which others work as well.

The scheduler divides time among threads: beside other work, a server of a hundred threads gets fifty times what one of
two gets, and wins races on that alone. In a control group of the highest weight the race has the machine as good as to
itself, whatever runs beside it. Needs root and the `cpu` controller; without them the race says so and goes on.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

# Where the controller may be (v1, v2), its file, and the greatest weight.
PLACES = (
    (Path("/sys/fs/cgroup/cpu"), "cpu.shares", "262144"),
    (Path("/sys/fs/cgroup"), "cpu.weight", "10000"),
)


@contextmanager
def claimed() -> Iterator[bool]:
    """Moves this process, and so whatever it starts, into a group of the highest weight; tells whether it could."""
    group = make_group()
    if group:
        move_to(group)
    try:
        yield group is not None
    finally:
        if group:
            move_to(group.parent)
            group.rmdir()


def make_group() -> Path | None:
    for place, weight, most in PLACES:
        group = place / f"millrace-race-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / weight).write_text(most)
            return group
        except OSError:
            group.rmdir()
    return None


def move_to(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
