"""What NVIDIA's assembler says of a kernel: registers, spills, memory accesses, tensor cores.

The tools come from PyPI: nvidia-cuda-nvcc (ptxas) and nvidia-cuda-nvdisasm.
"""

import hashlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Limits of a multiprocessor: registers, warps, blocks, bytes of shared memory. CUDA C++ Programming
# Guide, "Compute Capabilities".
LIMITS = {
    "sm_80": (65536, 64, 32, 164 << 10),
    "sm_90": (65536, 64, 32, 228 << 10),
    "sm_100": (65536, 64, 32, 228 << 10),
}
# Registers are given to a warp in units of this many.
REGISTER_UNIT = 256
# The system takes this many bytes of shared memory for a block.
RESERVED_SHARED = 1024

# Instructions of tensor cores: of a warp, of a group of warps (Hopper) and of an SM (Blackwell).
TENSOR_CORES = re.compile(r"^(HMMA|IMMA|DMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|BGMMA|UTC\w*MMA)\b")
OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


@dataclass(frozen=True)
class Sass:
    """A compiled kernel. Memory is in bytes."""

    registers: int
    spills: int
    static_shared: int
    instructions: int
    loads: int
    wide_loads: int
    stores: int
    wide_stores: int
    tensor_cores: int
    bulk_loads: int

    def occupancy(self, arch: str, threads: int, dynamic_shared: int) -> float:
        """The share of a multiprocessor's warps that blocks of `threads` threads can fill."""
        registers, warps, blocks, shared = LIMITS[arch]
        warps_a_block = -(-threads // 32)
        per_warp = -(-self.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
        fit = [
            blocks,
            warps // warps_a_block,
            registers // per_warp // warps_a_block,
            shared // (self.static_shared + dynamic_shared + RESERVED_SHARED),
        ]
        return min(fit) * warps_a_block / warps


class Assembler:
    """Compiles PTX for one architecture. Results are kept in a folder by the content of the PTX."""

    def __init__(self, bin_folder: Path, arch: str, kept: Path):
        self.bin = bin_folder
        # Instructions that exist on one architecture alone have names with an `a`.
        self.target = arch if arch == "sm_80" else f"{arch}a"
        self.kept = kept / arch
        self.kept.mkdir(parents=True, exist_ok=True)

    def compile(self, ptx: Path) -> Sass:
        """Raises RuntimeError with ptxas's words if the PTX is not valid."""
        name = hashlib.sha256(ptx.read_bytes()).hexdigest()[:16]
        info = self.kept / f"{name}.txt"
        if not info.exists():
            with tempfile.TemporaryDirectory() as folder:
                report, listing = self.assemble(ptx, Path(folder) / "cubin")
            info.write_text(report + "\n---\n" + listing)
        report, _, listing = info.read_text().partition("\n---\n")
        return parsed(report, listing)

    def assemble(self, ptx: Path, cubin: Path) -> tuple[str, str]:
        """Returns the report of `ptxas` and the listing of `nvdisasm`."""
        command = [self.bin / "ptxas", f"-arch={self.target}", "-v", "-o", cubin, ptx]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{ptx}: {done.stderr.strip()[:2000]}")
        command = [self.bin / "nvdisasm", "-c", cubin]
        listing = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stderr, listing.stdout


def parsed(report: str, listing: str) -> Sass:
    """Reads what `ptxas -v` reports and what `nvdisasm -c` lists."""

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, report))

    opcodes = [found[1] for found in map(OPCODE.match, listing.splitlines()) if found]

    def count(prefix: str, suffix: str = "") -> int:
        return sum(op.startswith(prefix) and suffix in op for op in opcodes)

    return Sass(
        registers=number(r"Used (\d+) registers"),
        spills=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        static_shared=number(r"(\d+) bytes smem"),
        instructions=sum(op != "NOP" for op in opcodes),
        loads=count("LDG"),
        wide_loads=count("LDG", ".128"),
        stores=count("STG"),
        wide_stores=count("STG", ".128"),
        tensor_cores=sum(bool(TENSOR_CORES.match(op)) for op in opcodes),
        bulk_loads=count("UTMALDG") + count("UBLKCP"),
    )
