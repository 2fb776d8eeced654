"""What NVIDIA's assembler says of a kernel: registers, spills, memory accesses, tensor cores.

The tools come from PyPI: nvidia-cuda-nvcc (ptxas) and nvidia-cuda-nvdisasm. The disassembler takes
a quarter of a second to start, and far less for a kernel. So it lists the code of many kernels at
once, one behind the other.
"""

import re
import struct
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
# The address of an instruction, and its name behind a predicate.
OPCODE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


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
    """Compiles PTX for one architecture, and lists its code."""

    def __init__(self, bin_folder: Path, arch: str):
        self.bin = bin_folder
        # Instructions that exist on one architecture alone have names with an `a`.
        self.target = arch if arch == "sm_80" else f"{arch}a"

    def assembled(self, ptx: str) -> tuple[str, bytes]:
        """Returns the report of `ptxas` and the code. Raises RuntimeError with its words."""
        with tempfile.TemporaryDirectory() as folder:
            source, cubin = Path(folder) / "ptx", Path(folder) / "cubin"
            source.write_text(ptx)
            command = [self.bin / "ptxas", f"-arch={self.target}", "-v", "-o", cubin, source]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"ptxas, {self.target}: {done.stderr.strip()[:2000]}")
            return done.stderr, code_of(cubin.read_bytes())

    def opcodes(self, codes: list[bytes]) -> list[list[str]]:
        """Returns the names of the instructions of each piece of code."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(codes))
            file.flush()
            # The names are sm_90a for the assembler, and SM90a here.
            name = self.target.replace("sm_", "SM")
            command = [self.bin / "nvdisasm", "-b", name, file.name]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nvdisasm, {self.target}: {done.stderr.strip()[:2000]}")
        found = filter(None, map(OPCODE.match, done.stdout.splitlines()))
        each = [(int(line[1], 16), line[2]) for line in found]
        result, begin, at = [], 0, 0
        for code in codes:
            end, names = begin + len(code), []
            while at < len(each) and each[at][0] < end:
                names.append(each[at][1])
                at += 1
            # An instruction has 16 bytes on all of these architectures.
            if len(names) * 16 != len(code):
                raise RuntimeError(f"nvdisasm lists {len(names)} of {len(code) // 16} instructions")
            result.append(names)
            begin = end
        return result


def code_of(cubin: bytes) -> bytes:
    """The instructions in a file of the format ELF with 64 bits: a kernel and its functions."""
    (at,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + 64 * i) for i in range(count)]
    names_at = sections[names][4]
    code = b""
    for name, _, _, _, offset, size, *_ in sections:
        if cubin.startswith(b".text", names_at + name):
            code += cubin[offset : offset + size]
    return code


def parsed(report: str, opcodes: list[str]) -> Sass:
    """Reads what `ptxas -v` reports, and counts instructions."""

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, report))

    def count(prefix: str, suffix: str = "") -> int:
        return sum(op.startswith(prefix) and suffix in op for op in opcodes)

    return Sass(
        registers=max(map(int, re.findall(r"Used (\d+) registers", report)), default=0),
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
