"""Runs of the engine on a driver without a GPU (`driver.c`), and what it recorded of them."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cache import Cache, digest, digest_of
from cases import Case

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HASH = re.compile(r"_[0-9a-f]{8}$")
# Files and folders of the source tree in a case.
FILES = re.compile(r"\b(?:benches|examples|tests)/[\w./-]+")


class Failed(Exception):
    """A case that failed, and why."""


def driver(folder: Path) -> None:
    """Builds the driver without a GPU, as `libcuda.so` in `folder`."""
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / "libcuda.so", HERE / "driver.c"], check=True)


@dataclass
class Engine:
    """The program, with the folders of its driver and of NVIDIA's packages."""

    program: Path
    driver: Path
    nvidia: Path
    # The content of all that every run depends on.
    made_of: str

    def run(self, name: str, case: Case, arch: str, cache: Cache) -> tuple[Path, bool]:
        """The folder with the PTX and the calls of a case, and whether it has just been run.
        Raises `Failed`."""
        case_text = json.dumps([case.arguments, case.requests])
        contents = [digest_of(ROOT / path) for path in FILES.findall(case_text)]
        key = digest(self.made_of, arch, case_text, *contents)
        return cache.made(key, lambda folder: self.start(name, case, arch, folder))

    def start(self, name: str, case: Case, arch: str, folder: Path) -> None:
        """Runs a case. No kernel may be compiled while a step is recorded, because that spoils the
        recording: <https://github.com/tracel-ai/burn/issues/5772>."""
        folder.mkdir(parents=True)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{self.driver}:{self.nvidia / 'lib'}",
            "CUDA_PATH": str(self.nvidia),
            "STAND_IN_DEVICE": arch,
            "STAND_IN_LOG": str(folder),
            # Products that were tuned before are kept there.
            "XDG_CACHE_HOME": str(folder / "home"),
        }
        command = [self.program, *case.arguments]
        if case.requests:
            lines = [json.dumps(request) for request in case.requests]
            (folder / "requests").write_text("\n".join(lines) + "\n")
            command += ["--input-file", folder / "requests", "--output-file", folder / "answers"]
        what = f"{name} on {arch}"
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{what}: it took more than 300 s") from None
        if done.returncode:
            words = " ".join(map(str, command))
            answers = folder / "answers"
            answered = answers.read_text()[-2000:] if answers.exists() else ""
            raise Failed(f"{what}: {words}\n{done.stdout[-2000:]}{done.stderr[-4000:]}{answered}")
        if late := compiled_late(folder):
            raise Failed(f"{what}: compiled while a step was recorded: {', '.join(late)}")
        if refused := [call for call in calls(folder, "launch") if call[-1] == "refused"]:
            raise Failed(f"{what}: the driver refuses a launch: {refused[0]}")
        if case.is_recorded and not replayed(folder):
            raise Failed(f"{what}: no recorded step was replayed")


def calls(folder: Path, kind: str) -> list[list[str]]:
    """The calls of a kind, without its name."""
    lines = [line.split("\t") for line in (folder / "calls.tsv").read_text().splitlines()]
    return [fields for name, *fields in lines if name == kind]


def compiled_late(folder: Path) -> list[str]:
    """The kernels that were compiled while a step was recorded. The driver refuses them."""
    modules = calls(folder, "module")
    return sorted({HASH.sub("", kernel) for _, kernel, state in modules if state == "refused"})


def replayed(folder: Path) -> int:
    """The launches of the longest recorded step that was replayed, or 0 if there was none."""
    return max((int(launches) for (launches,) in calls(folder, "graph")), default=0)


@dataclass(frozen=True)
class Launch:
    """The first launch of a kernel. Memory is in bytes."""

    module: str
    # Its own name, without the hash that cubecl appends.
    kernel: str
    entry: str
    threads: int
    shared: int
    is_recorded: bool


def launches(folder: Path) -> list[Launch]:
    """The kernels that a case launched, in the order of their first launches."""
    found: dict[tuple[str, str], Launch] = {}
    recorded = set()
    for module, entry, _, block, shared, state in calls(folder, "launch"):
        if state == "captured":
            recorded.add((module, entry))
        if (module, entry) not in found:
            x, y, z = map(int, block.split("x"))
            kernel = HASH.sub("", entry)
            found[module, entry] = Launch(module, kernel, entry, x * y * z, int(shared), False)
    return [
        Launch(one.module, one.kernel, one.entry, one.threads, one.shared, key in recorded)
        for key, one in found.items()
    ]


def ptx_of(folder: Path, launch: Launch) -> str:
    """The PTX of a kernel. Its name has no hash, which is another one after each change."""
    text = (folder / f"{launch.module}.ptx").read_text()
    return text.replace(launch.entry, launch.kernel)
