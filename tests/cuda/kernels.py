"""The compiled kernels of all cases. A kernel of several cases is compiled once."""

import json
import threading
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path

from cache import Cache, digest, digest_of
from sass import Assembler, Sass, parsed

# Kernels whose code is listed by one process.
LISTED_TOGETHER = 64


class Kernels:
    """What the assembler says of each kernel, by the key of its PTX."""

    def __init__(self, bin_folder: Path, cache: Cache, versions: str):
        self.bin, self.cache = bin_folder, cache
        # The numbers depend on how they are read.
        self.made_of = digest(versions, digest_of(Path(__file__).with_name("sass.py")))
        self.listed: dict[str, Sass] = {}
        self.new = 0
        # Kernels that are assembled and not listed: their architecture, report and code.
        self.assembled: dict[str, tuple[str, str, bytes]] = {}
        self.lock = threading.Lock()

    def key(self, arch: str, ptx: str) -> str:
        return digest(self.made_of, arch, ptx)

    def assemble(self, key: str, arch: str, ptx: str) -> None:
        """Assembles a kernel, unless its numbers are kept. Raises RuntimeError if ptxas fails."""
        path = self.cache.path(key)
        if path.exists():
            with self.lock:
                self.listed[key] = Sass(**json.loads(path.read_text()))
            return
        report, code = Assembler(self.bin, arch).assembled(ptx)
        with self.lock:
            self.assembled[key] = (arch, report, code)

    def list_all(self, pool: Executor) -> None:
        """Lists the code of all kernels that were assembled."""
        groups: dict[str, list[str]] = {}
        for key, (arch, _, _) in self.assembled.items():
            groups.setdefault(arch, []).append(key)
        tasks = [
            (arch, keys[at : at + LISTED_TOGETHER])
            for arch, keys in groups.items()
            for at in range(0, len(keys), LISTED_TOGETHER)
        ]
        list(pool.map(lambda task: self.list_some(*task), tasks))

    def list_some(self, arch: str, keys: list[str]) -> None:
        codes = [self.assembled[key][2] for key in keys]
        for key, opcodes in zip(keys, Assembler(self.bin, arch).opcodes(codes), strict=True):
            sass = parsed(self.assembled[key][1], opcodes)
            path = self.cache.path(key)
            partial = path.with_name(f"{key}.partial")
            partial.write_text(json.dumps(asdict(sass)))
            partial.rename(path)
            with self.lock:
                self.listed[key] = sass
                self.new += 1
