"""What the driver without a GPU says of recordings (`driver.c`). It needs a C compiler alone."""

import ctypes
import os
import tempfile
import unittest
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

from runs import compiled_late, driver

SUCCESS, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 0, 900, 901
GLOBAL = 0
IMAGE = b".visible .entry some_kernel()\n{ ret; }\n"


class Recording(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        os.environ["STAND_IN_LOG"] = temporary.name
        cls.addClassCleanup(os.environ.pop, "STAND_IN_LOG")
        driver(cls.folder)
        cls.cuda = ctypes.CDLL(str(cls.folder / "libcuda.so"))

    def setUp(self) -> None:
        (self.folder / "calls.tsv").write_text("")
        self.stream, self.kernel = c_void_p(), c_void_p()
        self.assertEqual(self.cuda.cuStreamCreate(byref(self.stream), c_uint(0)), SUCCESS)
        error, module = self.load()
        self.assertEqual(error, SUCCESS)
        error = self.cuda.cuModuleGetFunction(byref(self.kernel), module, c_char_p(b"some_kernel"))
        self.assertEqual(error, SUCCESS)

    def load(self) -> tuple[int, c_uint64]:
        module = c_uint64()
        return self.cuda.cuModuleLoadData(byref(module), c_char_p(IMAGE)), module

    def launch(self) -> int:
        sides = [c_uint(1)] * 6
        return self.cuda.cuLaunchKernel(self.kernel, *sides, c_uint(0), self.stream, None, None)

    def begin(self) -> None:
        self.assertEqual(self.cuda.cuStreamBeginCapture_v2(self.stream, GLOBAL), SUCCESS)

    def end(self) -> tuple[int, int | None]:
        """The error, and the number of launches if there is a recording."""
        graph, count = c_void_p(), c_size_t()
        error = self.cuda.cuStreamEndCapture(self.stream, byref(graph))
        if not graph:
            return error, None
        self.assertEqual(self.cuda.cuGraphGetNodes(graph, None, byref(count)), SUCCESS)
        return error, count.value

    def test_launches_of_loaded_kernels_are_recorded(self) -> None:
        self.begin()
        self.assertEqual((self.launch(), self.launch()), (SUCCESS, SUCCESS))
        self.assertEqual(self.end(), (SUCCESS, 2))
        self.assertEqual(compiled_late(self.folder), [])

    def test_a_kernel_that_is_loaded_meanwhile_spoils_the_recording(self) -> None:
        self.begin()
        self.assertEqual(self.launch(), SUCCESS)
        self.assertEqual(self.load()[0], CAPTURE_UNSUPPORTED)
        self.assertEqual(self.launch(), CAPTURE_INVALIDATED)
        self.assertEqual(self.end(), (CAPTURE_INVALIDATED, None))
        self.assertEqual(compiled_late(self.folder), ["some_kernel"])
        # The next recording is another one.
        self.assertEqual(self.load()[0], SUCCESS)
        self.begin()
        self.assertEqual(self.launch(), SUCCESS)
        self.assertEqual(self.end(), (SUCCESS, 1))

    def test_so_does_memory_that_is_allocated_meanwhile(self) -> None:
        self.begin()
        error = self.cuda.cuMemAlloc_v2(byref(c_void_p()), c_size_t(64))
        self.assertEqual(error, CAPTURE_UNSUPPORTED)
        self.assertEqual(self.end(), (CAPTURE_INVALIDATED, None))


if __name__ == "__main__":
    unittest.main()
