"""Results that are kept from one run of the gate to the next.

A result has a name that depends on all that it is made of, so an old one is never wrong. Results
that a whole run did not use are deleted.
"""

import hashlib
import importlib.metadata
import shutil
import threading
from collections.abc import Callable
from pathlib import Path


def digest(*parts: str | bytes) -> str:
    """The name of a result that is made of these."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        # The length keeps ("a", "bc") and ("ab", "c") apart.
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:32]


def digest_of(path: Path) -> str:
    """The content of a file, or of all files of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest(*(f"{file.relative_to(path)}\t{digest_of(file)}" for file in files))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tool_versions() -> str:
    """The versions of NVIDIA's packages in this Python."""
    found = importlib.metadata.distributions()
    names = {f"{one.name}=={one.version}" for one in found if (one.name or "").startswith("nvidia")}
    return "\n".join(sorted(names))


class Cache:
    """A folder of results."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.used: set[str] = set()
        self.lock = threading.Lock()

    def path(self, name: str) -> Path:
        with self.lock:
            self.used.add(name)
        return self.folder / name

    def made(self, name: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
        """The path of a result, and whether `make` has just written it. If `make` fails, nothing
        is kept."""
        path = self.path(name)
        if path.exists():
            return path, False
        partial = path.with_name(f"{name}.partial")
        remove(partial)
        make(partial)
        partial.rename(path)
        return path, True

    def forget_unused(self) -> None:
        for path in self.folder.iterdir():
            if path.name not in self.used:
                remove(path)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
