"""What a program asks of the system that runs it, read with readelf."""

import os
import re
from dataclasses import dataclass

from tool import PackageError, output, require

MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}


@dataclass(frozen=True)
class Elf:
    """The needs of a program."""

    machine: str
    # Names of shared libraries: libc.so.6
    libraries: tuple
    # The oldest glibc that has all symbols: (2, 34)
    glibc: tuple


def read(path):
    """Returns the needs of the program at `path`."""
    require("readelf", "binutils")
    environment = {**os.environ, "LC_ALL": "C"}
    text = output("readelf", "-W", "-h", "-d", "-V", str(path), env=environment).decode()
    machine = re.search(r"^\s*Machine:\s*(.+?)\s*$", text, re.M)
    if machine is None or machine[1] not in MACHINES:
        raise PackageError(f"{path}: the machine must be one of {', '.join(MACHINES.values())}")
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", text)]
    if not versions:
        raise PackageError(
            f"{path}: it does not use glibc; packages of static programs are not made"
        )
    libraries = re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", text)
    return Elf(MACHINES[machine[1]], tuple(libraries), max(versions)[:2])
