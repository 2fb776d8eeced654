"""Packages of one program are equal, byte for byte. It needs no build: a program of the system
stands for ours."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Makes every package of the program `argv[3]` in the folder `argv[2]`, and prints their hashes. The
# code of the packages is in `argv[1]`.
SCRIPT = """
import hashlib, json, os, sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import deb, elf, image, sbom, tarball, wheel
from release import Release

program = Path(sys.argv[3]).resolve()
needs = elf.read(program)
doc = "share/doc/playhouse"
files = {"bin/playhouse": program.read_bytes(), "share/man/man1/playhouse.1": b"a page"}
for name in ("README.md", "CHANGELOG.md", "LICENSE", "playhouse.toml", "playhouse.cdx.json"):
    files[f"{doc}/{name}"] = name.encode()
release = Release(
    version="0.1.0", description="A program.", repository="https://example.com/it",
    target=f"{needs.machine}-unknown-linux-gnu", commit="c" * 40,
    epoch=int(os.environ["SOURCE_DATE_EPOCH"]), elf=needs, program=program, crates=(), files=files,
)
out = Path(sys.argv[2])
out.mkdir()
paths = [part.write(release, out) for part in (tarball, wheel, deb, image, sbom)]
print(json.dumps({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}))
"""


@unittest.skipUnless(shutil.which("dpkg-deb"), "there is no dpkg-deb")
class Equal(unittest.TestCase):
    def made(self, folder, epoch, **environment):
        """Returns the hash of each package, made in `folder` below a new one."""
        program = shutil.which("true")
        command = [sys.executable, "-c", SCRIPT, str(ROOT / "configs/package")]
        with tempfile.TemporaryDirectory() as root:
            out = Path(root) / folder
            done = subprocess.run(
                [*command, str(out), program],
                env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), **environment},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

    def test_folder_zone_and_order_of_hashes_change_nothing(self):
        first = self.made("a", 1_700_000_000, TZ="UTC", PYTHONHASHSEED="1")
        other = self.made("another", 1_700_000_000, TZ="Asia/Tokyo", PYTHONHASHSEED="2")
        self.assertEqual(first, other)
        self.assertEqual(len(first), 5)

    def test_the_time_is_that_of_the_commit(self):
        early, late = (self.made("a", epoch) for epoch in (0, 1_700_000_000))
        self.assertEqual(set(early), set(late))
        equal = {name for name in early if early[name] == late[name]}
        # The SBOM is given here, and the others have times in them.
        self.assertEqual({Path(name).suffixes[-2] for name in equal}, {".cdx"})


if __name__ == "__main__":
    unittest.main()
