"""What the gate reads out of the calls that the driver records (`gate.py`)."""

import tempfile
import unittest
from pathlib import Path

from gate import compiled_late, step

LAUNCH = "launch\t00\tsome_kernel\t1x1x1\t32x1x1\t0\t"
FIRST = ["module\t00\tsome_kernel\tloaded", LAUNCH + "launched", "capture\tbegin"]
FIRST += [LAUNCH + "captured", LAUNCH + "captured", "capture\tend\t2", "graph\t2"]
LATER = ["capture\tbegin", LAUNCH + "captured", "capture\tend\t1"]
MODULE = ["module\t01\tother_kernel\tloaded"]
REPLAY = ["graph\t1"]


class Calls(unittest.TestCase):
    def folder(self, lines: list[str]) -> Path:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        (Path(temporary.name) / "calls.tsv").write_text("\n".join(lines) + "\n")
        return Path(temporary.name)

    def test_the_longest_replayed_step_counts(self) -> None:
        self.assertEqual(step("a case", self.folder(FIRST + LATER + REPLAY), "sm_90").launches, 2)
        with self.assertRaises(SystemExit):
            step("a case", self.folder(LATER), "sm_90")

    def test_a_refused_module_is_named_without_its_hash(self) -> None:
        lines = ["module\t00\tsome_kernel_0123abcd\trefused", *MODULE]
        self.assertEqual(compiled_late(self.folder(lines)), ["some_kernel"])


if __name__ == "__main__":
    unittest.main()
