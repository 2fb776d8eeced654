"""Compiles every kernel that the engine launches on NVIDIA GPUs, without a GPU.

A program built with the feature `cuda` runs on a driver without a GPU (`driver.c`), which keeps the
PTX of each kernel and records the launches. NVIDIA's assembler compiles the PTX, and what it says
of each kernel is compared with the tables of this folder: `sm_90.llvm.tsv` and so on. A recorded
decode step may have no more launches than `steps.llvm.tsv` says, and its kernels may not spill. No
kernel may be compiled while a step is recorded. Each kernel of the sources must be in a case.

Usage: gate.py [PROGRAM] [--compiler llvm] [--arch sm_80 sm_90 sm_100] [--case NAME …]
               [--cache FOLDER] [--jobs N] [--seconds-max N] [--write]

PROGRAM (default: target/debug/playhouse) is built with `--features cuda` (llvm) or
`--features cuda-nvrtc` (nvrtc). The tools are Python packages: nvidia-cuda-nvcc,
nvidia-cuda-nvdisasm, and for nvrtc nvidia-cuda-nvrtc and nvidia-cuda-cccl.

- --write: write the tables. Without it, a difference that costs time is an error.
- --case: some cases alone. Their rows are compared, and no table is written.
- --cache: a folder of results. A run is repeated if the program, the driver, the tools or the case
  changed, and a kernel is assembled again if its PTX or the tools changed.
- --seconds-max: more seconds than these are an error.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import coverage
from cache import Cache, digest, digest_of, tool_versions
from cases import CASES
from kernels import Kernels
from runs import HERE, ROOT, Engine, Failed, Launch, driver, launches, ptx_of, replayed
from table import Row, Step, more_launches, read, regressions, spilled, write

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def tools() -> Path:
    """The folder of NVIDIA's packages in this Python: `bin`, `include` and `lib` are in it."""
    for folder in sys.path:
        for found in sorted(Path(folder).glob("nvidia/cu*/bin/ptxas")):
            return found.parent.parent
    sys.exit("ptxas is missing: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")


class Gate:
    """The runs of all cases, and what they launched."""

    def __init__(self, engine: Engine, kernels: Kernels, runs: Cache, jobs: int):
        self.engine, self.kernels, self.runs, self.jobs = engine, kernels, runs, jobs
        # The launches of a case on an architecture, each with the key of its kernel.
        self.launched: dict[tuple[str, str], list[tuple[Launch, str]]] = {}
        self.steps: list[Step] = []
        self.faults: list[str] = []
        self.seconds: Counter[str] = Counter()
        self.longest: list[tuple[float, str]] = []
        self.num_runs = 0

    def one_run(self, arch: str, case: str) -> Path:
        begun = time.monotonic()
        folder, is_new = self.engine.run(case, CASES[case], arch, self.runs)
        if is_new:
            self.longest.append((time.monotonic() - begun, f"{case} on {arch}"))
        return folder

    def run(self, archs: list[str], cases: list[str]) -> None:
        """Runs all cases, assembles each kernel as soon as a case has launched it, and lists the
        code of all kernels together."""
        begun = time.monotonic()
        with ThreadPoolExecutor(self.jobs) as pool:
            running = {
                pool.submit(self.one_run, arch, case): (arch, case)
                for case in cases
                for arch in (archs if CASES[case].is_everywhere else ARCHITECTURES[:1])
            }
            self.num_runs = len(running)
            assembling: dict[str, tuple[str, Future]] = {}
            for done in as_completed(running):
                arch, case = running[done]
                try:
                    folder = done.result()
                except (Failed, subprocess.SubprocessError, OSError) as error:
                    self.faults.append(str(error))
                    continue
                if found := replayed(folder):
                    self.steps.append(Step(arch, case, found))
                for each in [arch] if CASES[case].is_everywhere else archs:
                    self.add(each, case, folder, pool, assembling)
            self.seconds["runs"] = time.monotonic() - begun
            for what, kernel in assembling.values():
                try:
                    kernel.result()
                except RuntimeError as error:
                    self.faults.append(f"{what}: {error}")
            self.seconds["assembler"] = time.monotonic() - begun - self.seconds["runs"]
            self.kernels.list_all(pool)
        self.seconds["all"] = time.monotonic() - begun
        spent = self.seconds["runs"] + self.seconds["assembler"]
        self.seconds["disassembler"] = self.seconds["all"] - spent

    def add(
        self,
        arch: str,
        case: str,
        folder: Path,
        pool: Executor,
        assembling: dict[str, tuple[str, Future]],
    ) -> None:
        """Takes the results of a run, and assembles the kernels that no run before it had."""
        of_case = []
        for launch in launches(folder):
            ptx = ptx_of(folder, launch)
            key = self.kernels.key(arch, ptx)
            if key not in assembling:
                what = f"{case} on {arch}: {launch.kernel}"
                assembling[key] = what, pool.submit(self.kernels.assemble, key, arch, ptx)
            of_case.append((launch, key))
        self.launched[arch, case] = of_case

    def rows(self, arch: str) -> list[Row]:
        """The kernels of all cases, in the order of their first launches. Kernels of one name are
        numbered."""
        result = []
        for case in CASES:
            numbers: Counter[str] = Counter()
            for launch, key in self.launched.get((arch, case), []):
                numbers[launch.kernel] += 1
                if (sass := self.kernels.listed.get(key)) is None:
                    continue
                name = f"{launch.kernel} {numbers[launch.kernel]}"
                occupancy = sass.occupancy(arch, launch.threads, launch.shared)
                result.append(Row.of(case, name, launch, occupancy, sass))
        return result

    def summary(self) -> str:
        seconds, runs, kernels = self.seconds, self.num_runs, self.kernels
        longest = [f"{name} {took:.1f} s" for took, name in sorted(self.longest, reverse=True)[:5]]
        lines = [
            f"runs: {seconds['runs']:.1f} s, {len(self.longest)} of {runs} are new",
            f"assembler after them: {seconds['assembler']:.1f} s, {kernels.new} of"
            f" {len(kernels.listed)} kernels are new",
            f"disassembler: {seconds['disassembler']:.1f} s",
            f"all: {seconds['all']:.1f} s in {self.jobs} jobs",
        ]
        return "\n".join(lines + ([f"longest: {', '.join(longest)}"] if longest else []))


def in_order(steps: list[Step]) -> list[Step]:
    cases = list(CASES)

    def place(step: Step) -> tuple[int, int]:
        at = cases.index(step.case) if step.case in cases else len(cases)
        return ARCHITECTURES.index(step.arch), at

    return sorted(steps, key=place)


def kept(path: Path, kind: type) -> list:
    """The rows of a table, or none if there is no such table."""
    return read(path, kind) if path.exists() else []


def is_wanted(row: Row | Step, options: argparse.Namespace) -> bool:
    """Whether a row of a table is compared: also if its case is gone, unless some were chosen."""
    return len(options.case) == len(CASES) or row.case in options.case


def checked(path: Path, now: list, compare: Callable, options: argparse.Namespace) -> list[str]:
    """Compares rows with those of a table, or writes the table. Returns a line for each fault."""
    kind = Step if compare is more_launches else Row
    if options.write:
        write(path, now, kind)
    elif not path.exists():
        print(f"there is no {path.name} to compare with: --write makes it")
    else:
        known = [row for row in kept(path, kind) if is_wanted(row, options)]
        return [f"{path.name}: {fault}" for fault in compare(known, now)]
    return []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    program = ROOT / "target" / "debug" / "playhouse"
    parser.add_argument("program", type=Path, nargs="?", default=program)
    parser.add_argument("--compiler", choices=["llvm", "nvrtc"], default="llvm")
    parser.add_argument("--arch", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds-max", type=float)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and len(options.case) < len(CASES):
        parser.error("--write takes all cases")
    if not options.program.is_file():
        parser.error(f"{options.program} is no program: cargo build --features cuda")
    return options


def judged(gate: Gate, options: argparse.Namespace) -> list[str]:
    """Writes the tables or compares with them. Returns a line for each fault."""
    faults, everything = list(gate.faults), []
    for arch in options.arch:
        rows = gate.rows(arch)
        everything += rows
        path = HERE / f"{arch}.{options.compiler}.tsv"
        faults += checked(path, rows, regressions, options)
        faults += [f"{arch}: {fault}" for fault in spilled(rows, options.compiler)]
        print(f"{arch}, {options.compiler}: {len(rows)} kernels of {len(options.case)} cases")
    path = HERE / f"steps.{options.compiler}.tsv"
    known = [step for step in kept(path, Step) if is_wanted(step, options)]
    now = {step.key for step in gate.steps}
    others = [s for s in known if s.arch not in options.arch and s.key not in now]
    faults += checked(path, in_order(others + gate.steps), more_launches, options)
    if len(options.case) == len(CASES):
        faults += coverage.uncovered(coverage.declared(coverage.SOURCES), everything)
    return faults


def main() -> None:
    options = arguments()
    begun, nvidia = time.monotonic(), tools()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        driver(work)
        folder = (options.cache or work / "cache").resolve() / options.compiler
        versions = tool_versions()
        made_of = digest(digest_of(options.program), digest_of(HERE / "driver.c"), versions)
        engine = Engine(options.program.resolve(), work, nvidia, made_of)
        kernels = Kernels(nvidia / "bin", Cache(folder / "kernels"), versions)
        gate = Gate(engine, kernels, Cache(folder / "runs"), options.jobs)
        gate.run(options.arch, options.case)
        faults = judged(gate, options)
        if options.arch == ARCHITECTURES and len(options.case) == len(CASES):
            gate.runs.forget_unused()
            kernels.cache.forget_unused()
    print(gate.summary())
    seconds = time.monotonic() - begun
    if options.seconds_max and seconds > options.seconds_max:
        faults.append(f"{seconds:.0f} s are more than {options.seconds_max:.0f} s")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
