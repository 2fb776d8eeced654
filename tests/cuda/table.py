"""Tables of compiled kernels and of steps, and which differences between two cost time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from sass import Sass

if TYPE_CHECKING:
    from runs import Launch

# A number may be worse by this share.
TOLERANCE = 0.05

# Bytes that a thread of a kernel may spill in a recorded step. A kernel that is not here may spill
# none. LLVM 22 calls the exponential as a function, and registers around the call are spilled.
# With a soft cap, attention has more of them. Products of experts in int4 for several rows have many
# numbers at a time.
SPILLS_MAX = {
    "llvm": {"spans_kernel": 32, "grouped_kernel": 24, "grouped_kernel_n_4": 100},
    "nvrtc": {
        "spans_kernel": 68, "grouped_kernel": 24, "grouped_kernel_n_4": 168, "conv_kernel": 16,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A kernel of a case. Memory is in bytes, and occupancy in percent of a multiprocessor's warps.

    Wide loads and stores move 128 bits a thread. The other loads and stores move less. Bulk loads
    are those of the tensor memory accelerator. A kernel is recorded (1) if a recorded step has it.
    """

    case: str
    kernel: str
    recorded: int
    threads: int
    shared: int
    registers: int
    spills: int
    occupancy: int
    instructions: int
    loads: int
    wide_loads: int
    stores: int
    wide_stores: int
    tensor_cores: int
    bulk_loads: int

    @staticmethod
    def of(case: str, name: str, launch: Launch, occupancy: float, sass: Sass) -> Row:
        numbers = asdict(sass)
        shared = numbers.pop("static_shared") + launch.shared
        recorded, percent = int(launch.is_recorded), round(100 * occupancy)
        return Row(
            case, name, recorded, launch.threads, shared, occupancy=percent, **numbers
        )  # fmt: skip

    @property
    def key(self) -> tuple[str, str]:
        return self.case, self.kernel


@dataclass(frozen=True)
class Step:
    """The launches of a case's recorded decode step, layers and all else."""

    arch: str
    case: str
    launches: int

    @property
    def key(self) -> tuple[str, str]:
        return self.arch, self.case


def write(path: Path, rows: list[Row] | list[Step], kind: type) -> None:
    lines = ["\t".join(field.name for field in fields(kind))]
    lines += ["\t".join(str(value) for value in asdict(row).values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path, kind: type) -> list:
    """Raises ValueError if the columns are others."""
    header, *lines = path.read_text().splitlines()
    if header.split("\t") != [field.name for field in fields(kind)]:
        raise ValueError(f"{path} has other columns: write it again with --write")
    # The types are names, because annotations are not evaluated.
    types = [{"int": int, "str": str}[field.type] for field in fields(kind)]
    return [
        kind(*(of(value) for of, value in zip(types, line.split("\t"), strict=True)))
        for line in lines
    ]


def spilled(rows: list[Row], compiler: str) -> list[str]:
    """Kernels of recorded steps that spill more than they may: one line each."""

    def most(row: Row) -> int:
        known = SPILLS_MAX[compiler].items()
        return max((most for name, most in known if row.kernel.startswith(name)), default=0)

    return [
        f"{' / '.join(row.key)}: spills in a recorded step: {row.spills} bytes, at most {most(row)}"
        for row in rows
        if row.recorded and row.spills > most(row)
    ]


def came_or_went(old: dict, new: dict) -> list[str]:
    faults = [f"{' / '.join(key)} is new: --write adds it" for key in new.keys() - old.keys()]
    faults += [f"{' / '.join(key)} is gone: --write removes it" for key in old.keys() - new.keys()]
    return faults


def more_launches(before: list[Step], now: list[Step]) -> list[str]:
    """Steps that launch more than before, and those that came or went: one line each."""
    old, new = ({step.key: step for step in steps} for steps in (before, now))
    faults = came_or_went(old, new)
    for key in sorted(old.keys() & new.keys()):
        was, is_now = old[key].launches, new[key].launches
        if is_now > was:
            faults.append(f"{' / '.join(key)}: launches of a recorded step: {was}, now {is_now}")
    return faults


def regressions(before: list[Row], now: list[Row]) -> list[str]:
    """What is worse now, and kernels that came or went: one line each."""
    old, new = ({row.key: row for row in rows} for rows in (before, now))
    faults = came_or_went(old, new)
    for key in sorted(old.keys() & new.keys()):
        then, row = old[key], new[key]
        narrow = [(r.loads - r.wide_loads, r.stores - r.wide_stores) for r in (then, row)]
        compared = [
            ("registers", then.registers, row.registers),
            ("bytes spilled", then.spills, row.spills),
            ("occupancy lost", 100 - then.occupancy, 100 - row.occupancy),
            ("instructions", then.instructions, row.instructions),
            ("narrow loads", narrow[0][0], narrow[1][0]),
            ("narrow stores", narrow[0][1], narrow[1][1]),
        ]
        for what, was, is_now in compared:
            if is_now > was * (1 + TOLERANCE):
                faults.append(f"{' / '.join(key)}: {what}: {was}, now {is_now}")
        for what, was, is_now in [
            ("tensor cores", then.tensor_cores, row.tensor_cores),
            ("bulk loads", then.bulk_loads, row.bulk_loads),
        ]:
            if is_now < was * (1 - TOLERANCE):
                faults.append(f"{' / '.join(key)}: {what}: {was}, now {is_now}")
    return faults
