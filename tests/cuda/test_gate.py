"""What the gate reads out of the calls that the driver records, what it keeps, and what it judges.

The program is a stand-in, too: it loads and launches two kernels. The tests of whole runs need
NVIDIA's assembler and disassembler from PyPI.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

import coverage
import gate
from cache import Cache, digest, tool_versions
from cases import CASES, Case
from kernels import Kernels
from runs import FILES, ROOT, Engine, Failed, compiled_late, driver, launches, replayed
from sass import Assembler, parsed
from table import Row, regressions, spilled

LAUNCH = "launch\t00\tsome_kernel_0123abcd\t1x1x1\t32x2x1\t0\t"
FIRST = ["module\t00\tsome_kernel\tloaded", LAUNCH + "launched", "capture\tbegin"]
FIRST += [LAUNCH + "captured", LAUNCH + "captured", "capture\tend\t2", "graph\t2"]
LATER = ["capture\tbegin", LAUNCH + "captured", "capture\tend\t1"]
MODULE = ["module\t01\tother_kernel\tloaded"]
REPLAY = ["graph\t1"]

# An engine of a few calls. `wide_kernel` moves 128 bits a thread.
PROGRAM = '''#!{python}
import ctypes, os, sys
cuda = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libcuda.so")
if "fail" in sys.argv:
    sys.exit("no such device")
arch = os.environ["STAND_IN_DEVICE"]
PTX = """.version 8.6
.target %s
.address_size 64
.visible .entry {{name}}(.param .u64 p)
{{{{
.reg .u64 %%rd<3>; .reg .f32 %%f<5>;
ld.param.u64 %%rd1, [p];
{{body}}
ret;
}}}}
""" % arch
FOUR = "{{%f1,%f2,%f3,%f4}}"
WIDE = "ld.global.v4.f32 " + FOUR + ", [%rd1]; st.global.v4.f32 [%rd1+16], " + FOUR + ";"
NARROW = "ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd1+16], %f1;"
stream, kernels = ctypes.c_void_p(), []
cuda.cuStreamCreate(ctypes.byref(stream), 0)
for name, body in [("wide_kernel_n_4_{hash}", WIDE), ("narrow_kernel_{hash}", NARROW)]:
    module, kernel = ctypes.c_uint64(), ctypes.c_void_p()
    text = PTX.format(name=name, body=body).encode()
    assert cuda.cuModuleLoadData(ctypes.byref(module), text) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode()) == 0
    kernels.append(kernel)
cuda.cuStreamBeginCapture_v2(stream, 0)
sides = [ctypes.c_uint(side) for side in (1, 1, 1, 64, 1, 1)]
for kernel in kernels[:1]:
    assert cuda.cuLaunchKernel(kernel, *sides, ctypes.c_uint(0), stream, None, None) == 0
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0))
cuda.cuGraphLaunch(executable, stream)
for kernel in kernels[1:]:
    assert cuda.cuLaunchKernel(kernel, *sides, ctypes.c_uint(0), stream, None, None) == 0
'''


def folder_of(test: unittest.TestCase) -> Path:
    temporary = tempfile.TemporaryDirectory()
    test.addCleanup(temporary.cleanup)
    return Path(temporary.name)


class Calls(unittest.TestCase):
    def folder(self, lines: list[str]) -> Path:
        folder = folder_of(self)
        (folder / "calls.tsv").write_text("\n".join(lines) + "\n")
        return folder

    def test_the_longest_replayed_step_counts(self) -> None:
        self.assertEqual(replayed(self.folder(FIRST + LATER + REPLAY)), 2)
        self.assertEqual(replayed(self.folder(LATER)), 0)

    def test_a_refused_module_is_named_without_its_hash(self) -> None:
        lines = ["module\t00\tsome_kernel_0123abcd\trefused", *MODULE]
        self.assertEqual(compiled_late(self.folder(lines)), ["some_kernel"])

    def test_a_launch_that_is_recorded_later_is_one_of_a_step(self) -> None:
        [launch] = launches(self.folder(FIRST))
        self.assertEqual((launch.kernel, launch.threads), ("some_kernel", 64))
        self.assertTrue(launch.is_recorded)


class Kept(unittest.TestCase):
    def test_a_result_is_made_once_and_one_that_failed_is_not_kept(self) -> None:
        cache, made = Cache(folder_of(self)), []

        def make(path: Path) -> None:
            made.append(path)
            path.write_text("half")
            if len(made) == 1:
                raise Failed("at first")

        self.assertRaises(Failed, cache.made, "a", make)
        self.assertEqual([cache.made("a", make)[1] for _ in range(2)], [True, False])
        (cache.folder / "of an older program").mkdir()
        cache.forget_unused()
        self.assertEqual([path.name for path in cache.folder.iterdir()], ["a"])

    def test_names_depend_on_where_parts_end(self) -> None:
        self.assertNotEqual(digest("a", "bc"), digest("ab", "c"))


class Tables(unittest.TestCase):
    ROW = Row("a case", "some_kernel 1", 1, 64, 0, 32, 0, 100, 90, 4, 4, 1, 1, 0, 0)

    def test_a_kernel_of_a_recorded_step_may_not_spill(self) -> None:
        rows = [self.ROW, replace(self.ROW, spills=4), replace(self.ROW, spills=4, recorded=0)]
        self.assertEqual([len(spilled([row], "llvm")) for row in rows], [0, 1, 0])
        known = replace(self.ROW, kernel="spans_kernel 3", spills=16)
        self.assertEqual(spilled([known], "llvm"), [])

    def test_what_costs_time_is_a_regression(self) -> None:
        worse = [{"registers": 34}, {"occupancy": 90}, {"wide_loads": 3}, {"instructions": 95}]
        for change in worse:
            faults = regressions([self.ROW], [replace(self.ROW, **change)])
            self.assertEqual(len(faults), 1, change)
        self.assertEqual(regressions([self.ROW], [replace(self.ROW, registers=33)]), [])

    def test_each_kernel_of_the_sources_must_be_launched_and_have_its_own_name(self) -> None:
        kernels = [("some_kernel", "a.rs"), ("none_kernel", "b.rs"), ("none_kernel", "c.rs")]
        rows = [replace(self.ROW, kernel="some_kernel_n_4 2")]
        faults = coverage.uncovered(kernels, rows)
        self.assertEqual(len(faults), 2)
        self.assertTrue(all("none_kernel" in fault for fault in faults), faults)
        names = [name for name, _ in coverage.declared(coverage.SOURCES)]
        self.assertGreater(len(names), 40)
        self.assertEqual(len(names), len(set(names)))


class Cases(unittest.TestCase):
    def test_files_of_cases_exist(self) -> None:
        for name, case in CASES.items():
            for path in FILES.findall(" ".join(case.arguments)):
                self.assertTrue((ROOT / path).exists(), f"{name}: {path}")


def nvidia() -> Path | None:
    try:
        return gate.tools()
    except SystemExit:
        return None


@unittest.skipUnless(nvidia(), "nvidia-cuda-nvcc and nvidia-cuda-nvdisasm are not installed")
class Whole(unittest.TestCase):
    CHOSEN = {
        "one": Case([], is_recorded=True, is_everywhere=True),
        "two": Case(["again"], is_recorded=True),
    }

    def setUp(self) -> None:
        self.folder = folder_of(self)
        driver(self.folder)
        self.addCleanup(lambda cases: gate.CASES.update(cases), dict(CASES))
        gate.CASES.clear()
        gate.CASES.update(self.CHOSEN)
        self.addCleanup(gate.CASES.clear)

    def gate(self, hash: str, cache: Path) -> gate.Gate:
        program = self.folder / "program"
        program.write_text(PROGRAM.format(python=sys.executable, hash=hash))
        program.chmod(0o755)
        engine = Engine(program, self.folder, nvidia(), digest(program.read_text()))
        kernels = Kernels(nvidia() / "bin", Cache(cache / "kernels"), tool_versions())
        result = gate.Gate(engine, kernels, Cache(cache / "runs"), os.cpu_count() or 1)
        result.run(list(gate.ARCHITECTURES), list(self.CHOSEN))
        self.assertEqual(result.faults, [])
        return result

    def test_kernels_of_several_cases_are_assembled_once_and_kept(self) -> None:
        cache = self.folder / "cache"
        first = self.gate("0123abcd", cache)
        # One case runs three times, and the PTX of the other is that of sm_80.
        self.assertEqual((len(first.longest), first.kernels.new), (4, 10))
        wide, narrow = first.rows("sm_90")[:2]
        self.assertEqual((wide.kernel, narrow.kernel), ("wide_kernel_n_4 1", "narrow_kernel 1"))
        self.assertEqual((wide.recorded, narrow.recorded), (1, 0))
        self.assertEqual((wide.loads, wide.wide_loads, wide.wide_stores), (1, 1, 1))
        self.assertEqual((narrow.loads, narrow.wide_loads, narrow.threads), (1, 0, 64))
        self.assertEqual([step.launches for step in first.steps], [1] * 4)
        second = self.gate("0123abcd", cache)
        self.assertEqual((len(second.longest), second.kernels.new), (0, 0))
        # Another program, whose kernels are the same but for their names.
        third = self.gate("ffffffff", cache)
        self.assertEqual((len(third.longest), third.kernels.new), (4, 0))
        self.assertEqual(third.rows("sm_90"), first.rows("sm_90"))

    def test_a_case_that_fails_does_not_end_the_others(self) -> None:
        gate.CASES["two"] = Case(["fail"])
        with self.assertRaisesRegex(AssertionError, "no such device"):
            self.gate("0123abcd", self.folder / "cache")

    def test_many_kernels_are_listed_as_each_alone(self) -> None:
        result = self.gate("0123abcd", self.folder / "cache")
        assembler = Assembler(nvidia() / "bin", "sm_90")
        found = sorted((self.folder / "cache" / "runs").glob("*/*.ptx"))
        texts = [path.read_text() for path in found if "sm_90" in path.read_text()]
        pieces = [assembler.assembled(text) for text in texts]
        self.assertGreater(len(pieces), 1)
        together = assembler.opcodes([code for _, code in pieces])
        for (report, code), opcodes in zip(pieces, together, strict=True):
            [alone] = assembler.opcodes([code])
            self.assertEqual(opcodes, alone)
            self.assertIn(parsed(report, alone), result.kernels.listed.values())
        with self.assertRaisesRegex(RuntimeError, "ptxas"):
            assembler.assembled("no PTX")

    def test_tables_are_written_and_compared(self) -> None:
        result = self.gate("0123abcd", self.folder / "cache")
        here, gate.HERE = gate.HERE, self.folder
        self.addCleanup(setattr, gate, "HERE", here)
        sources, coverage.SOURCES = coverage.SOURCES, self.folder
        self.addCleanup(setattr, coverage, "SOURCES", sources)
        options = argparse.Namespace(
            arch=list(gate.ARCHITECTURES), case=list(self.CHOSEN), compiler="llvm", write=True
        )

        def judged() -> list[str]:
            with contextlib.redirect_stdout(io.StringIO()):
                return gate.judged(result, options)

        self.assertEqual(judged(), [])
        options.write = False
        self.assertEqual(judged(), [])
        result.steps = [replace(step, launches=step.launches + 1) for step in result.steps]
        self.assertEqual(len(judged()), 4)
        options.case, result.launched = ["one"], {}
        faults = judged()
        self.assertTrue(any("one / wide_kernel_n_4 1 is gone" in fault for fault in faults))
        self.assertFalse(any("two / wide_kernel" in fault for fault in faults))
        (self.folder / "lone.rs").write_text("#[cube(launch_unchecked)]\nfn lone_kernel() {}\n")
        options.case = list(self.CHOSEN)
        self.assertTrue(any("lone_kernel" in fault for fault in judged()))


if __name__ == "__main__":
    unittest.main()
