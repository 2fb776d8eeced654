"""The kernels in the sources, and those that no case launches."""

import re
from pathlib import Path

from table import Row

SOURCES = Path(__file__).parent.parent.parent / "kernels" / "src"
KERNEL = re.compile(r"#\[cube\(launch[^\]]*\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\S*\s+)?fn (\w+)")


def declared(sources: Path) -> list[tuple[str, str]]:
    """The name and the file of each kernel. Names of other libraries are not among them."""
    files = sorted(path for path in sources.rglob("*.rs") if "tests" not in str(path))
    found = [(path, KERNEL.findall(path.read_text())) for path in files]
    return [(name, str(path.relative_to(sources))) for path, names in found for name in names]


def uncovered(kernels: list[tuple[str, str]], rows: list[Row]) -> list[str]:
    """Kernels that no case launches, and names of more than one kernel: one line each."""
    # A name ends with the constants that the kernel is compiled for, and its number in the case.
    launched = {row.kernel.split(" ")[0] for row in rows}
    places: dict[str, list[str]] = {}
    for name, file in kernels:
        places.setdefault(name, []).append(file)
    faults = []
    for name, files in places.items():
        if len(files) > 1:
            faults.append(f"{name} is the name of several kernels: {', '.join(files)}")
        if not any(one == name or one.startswith(f"{name}_") for one in launched):
            faults.append(f"{files[0]}: no case launches {name}")
    return faults
