"""Compiles every kernel that the engine launches on NVIDIA GPUs, without a GPU.

A program built with the feature `cuda` runs on a driver without a GPU (`driver.c`), which keeps the
PTX of each kernel and records the launches. NVIDIA's assembler compiles the PTX, and what it says
of each kernel is compared with the tables of this folder: `sm_90.llvm.tsv` and so on. A recorded
decode step may have no more launches than `steps.llvm.tsv` says, and each case must replay one.
No kernel may be compiled while a step is recorded.

Usage: gate.py [PROGRAM] [--compiler llvm] [--arch sm_80 sm_90 sm_100] [--write]

PROGRAM (default: target/debug/playhouse) is built with `--features cuda` (llvm) or
`--features cuda-nvrtc` (nvrtc). The tools are Python packages: nvidia-cuda-nvcc,
nvidia-cuda-nvdisasm, and for nvrtc nvidia-cuda-nvrtc and nvidia-cuda-cccl. --write writes the
tables, and without it a difference that costs time is an error.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cases import CASES
from sass import Assembler
from table import Row, Step, more_launches, read, regressions, write

HERE = Path(__file__).parent
HASH = re.compile(r"_[0-9a-f]{8}$")
ROOT = HERE.parent.parent
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def tools() -> Path:
    """The folder of NVIDIA's packages in this Python: `bin`, `include` and `lib` are in it."""
    for folder in sys.path:
        for found in sorted(Path(folder).glob("nvidia/cu*/bin/ptxas")):
            return found.parent.parent
    sys.exit("ptxas is missing: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")


def driver(folder: Path) -> None:
    """Builds the driver without a GPU, as `libcuda.so` in `folder`."""
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / "libcuda.so", HERE / "driver.c"], check=True)


def run(program: Path, case: str, arch: str, folder: Path, nvidia: Path) -> None:
    """Runs one case. Its PTX and its launches are in `folder` afterwards. No kernel may be compiled
    while a step is recorded, because that spoils the recording:
    <https://github.com/tracel-ai/burn/issues/5772>."""
    folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder.parent.parent}:{nvidia / 'lib'}",
        "CUDA_PATH": str(nvidia),
        "STAND_IN_DEVICE": arch,
        "STAND_IN_LOG": str(folder),
    }
    command = [program, *CASES[case]]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        sys.exit(f"{case} on {arch}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    late = compiled_late(folder)
    if late:
        sys.exit(f"{case} on {arch}: compiled while a step was recorded: {', '.join(late)}")


def calls(folder: Path, kind: str) -> list[list[str]]:
    """The calls of a kind, without its name."""
    lines = [line.split("\t") for line in (folder / "calls.tsv").read_text().splitlines()]
    return [fields for name, *fields in lines if name == kind]


def compiled_late(folder: Path) -> list[str]:
    """The kernels that were compiled while a step was recorded. The driver refuses them."""
    modules = calls(folder, "module")
    return sorted({HASH.sub("", kernel) for _, kernel, state in modules if state == "refused"})


def step(case: str, folder: Path, arch: str) -> Step:
    """The recorded step that was replayed. No other engine runs before it in its process."""
    replayed = [int(launches) for (launches,) in calls(folder, "graph")]
    if not replayed:
        sys.exit(f"{case} on {arch}: no recorded step was replayed")
    return Step(arch, case, max(replayed))


def rows(case: str, folder: Path, assembler: Assembler, arch: str) -> list[Row]:
    """The kernels that a case launched, in the order of their first launches. Names lose cubecl's
    hash, which is another one after each change. Kernels of one name are numbered."""
    launches = calls(folder, "launch")
    refused = [fields for fields in launches if fields[-1] == "refused"]
    if refused:
        sys.exit(f"{case} on {arch}: the driver refuses a launch: {refused[0]}")
    numbers, names, result = Counter(), {}, []
    for module, kernel, _, block, shared, _ in launches:
        if (module, kernel) in names:
            continue
        name = HASH.sub("", kernel)
        numbers[name] += 1
        names[module, kernel] = f"{name} {numbers[name]}"
        sass = assembler.compile(folder / f"{module}.ptx")
        threads = 1
        for side in block.split("x"):
            threads *= int(side)
        occupancy = sass.occupancy(arch, threads, int(shared))
        result.append(Row.of(case, names[module, kernel], threads, int(shared), occupancy, sass))
    return result


def in_order(steps: list[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: ARCHITECTURES.index(step.arch))


def kept(path: Path, kind: type) -> list:
    """The rows of a table, or none if there is no such table."""
    return read(path, kind) if path.exists() else []


def checked(path: Path, now: list, kind: type, compare: Callable, is_written: bool) -> list[str]:
    """Compares rows with those of a table, or writes the table. Returns a line for each fault."""
    if is_written:
        write(path, now)
    elif not path.exists():
        print(f"there is no {path.name} to compare with: --write makes it")
    else:
        return [f"{path.name}: {fault}" for fault in compare(kept(path, kind), now)]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    program = ROOT / "target" / "debug" / "playhouse"
    parser.add_argument("program", type=Path, nargs="?", default=program)
    parser.add_argument("--compiler", choices=["llvm", "nvrtc"], default="llvm")
    parser.add_argument("--arch", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--work", type=Path, help="a folder to keep the PTX in")
    options = parser.parse_args()
    nvidia = tools()
    faults, steps = [], []
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        driver(work)
        for arch in options.arch:
            assembler = Assembler(nvidia / "bin", arch, work / "sass")

            def of_case(case: str) -> tuple[Step, list[Row]]:
                folder = work / arch / case.replace(" ", "-")
                run(options.program.resolve(), case, arch, folder, nvidia)
                return step(case, folder, arch), rows(case, folder, assembler, arch)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                results = list(pool.map(of_case, CASES))
            steps += [step for step, _ in results]
            table = [row for _, rows in results for row in rows]
            path = HERE / f"{arch}.{options.compiler}.tsv"
            faults += checked(path, table, Row, regressions, options.write)
            print(f"{arch}, {options.compiler}: {len(table)} kernels of {len(CASES)} cases")
    path = HERE / f"steps.{options.compiler}.tsv"
    others = [known for known in kept(path, Step) if known.arch not in options.arch]
    faults += checked(path, in_order(others + steps), Step, more_launches, options.write)
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
