"""What is in the packages: checksums, names, licences, the SBOM, and nothing of the builder."""

import email
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import unittest
import zipfile
from pathlib import Path

import place

# The wheel, the deb, and a crate of crates.io may have this size.
CRATE_BYTES_MAX = 10 * 1024 * 1024


def setUpModule():
    global DIST
    DIST = place.tested()


class Sums(unittest.TestCase):
    def test_every_package_has_its_checksum(self):
        place.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=DIST)
        listed = {line.split()[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
        there = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
        self.assertEqual(listed, there)
        self.assertEqual(len(there), 5)

    def test_packages_of_one_commit_are_equal(self):
        second = place.packages("second")
        self.assertEqual((DIST / "SHA256SUMS").read_text(), (second / "SHA256SUMS").read_text())


class Tarball(unittest.TestCase):
    def setUp(self):
        self.path = place.only(DIST, "*.tar.gz")

    def test_it_has_what_users_expect(self):
        name = self.path.name.removesuffix(".tar.gz")
        with tarfile.open(self.path) as archive:
            files = {file.name.removeprefix(f"{name}/"): file for file in archive if file.isfile()}
            licences = archive.extractfile(f"{name}/share/doc/playhouse/THIRD-PARTY-LICENSES.txt")
            licences = licences.read().decode()
        for path in (
            "share/man/man1/playhouse-serve.1",
            "share/bash-completion/completions/playhouse",
            "share/zsh/site-functions/_playhouse",
            "share/fish/vendor_completions.d/playhouse.fish",
            "share/doc/playhouse/LICENSE",
            "share/doc/playhouse/playhouse.toml",
            "share/doc/playhouse/playhouse.cdx.json",
            "share/playhouse/demo-vision/model.safetensors",
        ):
            self.assertIn(path, files)
            self.assertGreater(files[path].size, 100, path)
        self.assertEqual(files["bin/playhouse"].mode, 0o755)
        for crate in ("tokenizers", "burn", "mimalloc", "ring"):
            self.assertRegex(licences, rf"(?m)^{crate} \d")
        # A library in C within a crate.
        self.assertIn("K.Kosako", licences)

    def test_binstall_finds_it(self):
        metadata = json.loads(
            place.run(
                ["cargo", "metadata", "--no-deps", "--format-version", "1"],
                cwd=place.ROOT,
                env=dict(os.environ),
            ).stdout
        )
        crate = next(crate for crate in metadata["packages"] if crate["name"] == "playhouse")
        binstall = crate["metadata"]["binstall"]
        target = re.fullmatch(r"playhouse-[\d.]+-(.+)\.tar\.gz", self.path.name)[1]
        known = {"name": "playhouse", "version": crate["version"], "target": target}
        known |= {"repo": crate["repository"], "bin": "playhouse", "binary-ext": ""}

        def filled(template):
            return re.sub(r"\{ (.+?) \}", lambda found: known[found[1]], template)

        self.assertEqual(filled(binstall["pkg-url"]).rsplit("/", 1)[1], self.path.name)
        with tarfile.open(self.path) as archive:
            self.assertTrue(archive.getmember(filled(binstall["bin-dir"])).isfile())


class Wheel(unittest.TestCase):
    def setUp(self):
        self.path = place.only(DIST, "*.whl")

    def test_its_record_is_right(self):
        with zipfile.ZipFile(self.path) as archive:
            self.assertIsNone(archive.testzip())
            (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
            about = email.message_from_bytes(archive.read(metadata))
        self.assertEqual((about["Name"], about["License-Expression"]), ("playhouse", "Apache-2.0"))

    @unittest.skipUnless(importlib.util.find_spec("auditwheel"), "there is no auditwheel")
    def test_its_tag_is_that_of_its_symbols(self):
        # auditwheel only reads wheels with a library, so it gets one that has the program as such.
        with zipfile.ZipFile(self.path) as archive:
            (program,) = [name for name in archive.namelist() if name.endswith("scripts/playhouse")]
            content = archive.read(program)
        folder = place.FOLDER / "audited"
        folder.mkdir(exist_ok=True)
        path = folder / self.path.name
        with zipfile.ZipFile(self.path) as archive, zipfile.ZipFile(path, "w") as copy:
            for name in archive.namelist():
                copy.writestr(name, archive.read(name))
            copy.writestr("playhouse/program.so", content)
        shown = place.run([sys.executable, "-m", "auditwheel", "show", str(path)]).stdout
        ours = re.search(r"manylinux_(\d+)_(\d+)_", self.path.name)
        theirs = re.search(r'platform\s+tag:\s+"manylinux_(\d+)_(\d+)_', shown)
        self.assertIsNotNone(theirs, shown)
        self.assertEqual(ours.groups(), theirs.groups(), shown)


class Sbom(unittest.TestCase):
    def setUp(self):
        self.document = json.loads(place.only(DIST, "*.cdx.json").read_text())
        self.crates = {
            (entry["name"], entry["version"])
            for entry in self.document["components"]
            if entry["bom-ref"].startswith("pkg:cargo/")
        }

    def test_it_has_the_crates_that_left_their_names_in_the_program(self):
        with tarfile.open(place.only(DIST, "*.tar.gz")) as archive:
            (file,) = [file for file in archive if file.name.endswith("bin/playhouse")]
            program = archive.extractfile(file).read()
        paths = re.findall(rb"registry/src/[^/]+/([\w-]+?)-(\d+\.\d+\.\d+[\w.+-]*)/", program)
        named = {(name.decode(), version.decode()) for name, version in paths}
        self.assertGreater(len(named), 50)
        self.assertLessEqual(named, self.crates)

    def test_each_crate_is_that_of_the_lock(self):
        lock = (place.ROOT / "Cargo.lock").read_text()
        block = r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"'
        locked = {(name, version): digest for name, version, digest in re.findall(block, lock)}
        ours = {(f"playhouse-{name}", "0.1.0") for name in ("actors", "demo-model", "kernels")}
        self.assertLessEqual(self.crates - ours, set(locked))
        self.assertGreater(len(self.crates), 300)
        for entry in self.document["components"]:
            if entry.get("purl", "").startswith("pkg:cargo/"):
                digest = locked[entry["name"], entry["version"]]
                self.assertEqual(entry["hashes"][0]["content"], digest)

    def test_the_direct_dependencies_and_the_pages_scripts_are_in_it(self):
        manifest = (place.ROOT / "Cargo.toml").read_text()
        section = manifest.split("\n[dependencies]\n")[1].split("\n[")[0]
        direct = set(re.findall(r"(?m)^([\w-]+)(?:\.workspace)? =", section))
        names = {entry["name"] for entry in self.document["components"]}
        self.assertGreater(len(direct), 40)
        self.assertLessEqual(direct, names)
        vendor = place.ROOT / "src/server/page/vendor"
        scripts = [entry for entry in self.document["components"] if "pkg:npm" in entry["bom-ref"]]
        self.assertEqual(len(scripts), len(list(vendor.glob("*.js"))))

    @unittest.skipUnless(importlib.util.find_spec("cyclonedx"), "there is no cyclonedx")
    def test_it_is_valid(self):
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        validator = JsonStrictValidator(SchemaVersion.V1_6)
        self.assertIsNone(validator.validate_str(json.dumps(self.document)))


class Crates(unittest.TestCase):
    def test_each_crate_can_be_packaged(self):
        target = place.FOLDER / "packaged"
        command = ["cargo", "package", "--workspace", "--no-verify", "--target-dir", str(target)]
        place.run(
            [*command, "--locked", "--quiet"], cwd=place.checkout("crates"), env=dict(os.environ)
        )
        crates = {path.name.rsplit("-", 1)[0]: path for path in target.glob("package/*.crate")}
        others = {f"playhouse-{name}" for name in ("actors", "demo-model", "kernels")}
        self.assertEqual(set(crates), {"playhouse"} | others)
        for path in crates.values():
            self.assertLess(path.stat().st_size, CRATE_BYTES_MAX, "crates.io takes no larger one")
        with tarfile.open(crates["playhouse-demo-model"]) as archive:
            packaged = {name.split("/", 1)[1] for name in archive.getnames()}
        source = (place.ROOT / "examples/demo-model/lib.rs").read_text()
        embedded = set(re.findall(r'include_bytes!\("(.+?)"\)', source))
        self.assertGreater(len(embedded), 10)
        self.assertLessEqual(embedded, packaged)


class Builder(unittest.TestCase):
    @unittest.skipIf(
        os.environ.get("PLAYHOUSE") and not os.environ.get("PACKAGES"),
        "the program was not built for packages",
    )
    def test_the_program_has_no_path_of_its_builder(self):
        with tarfile.open(place.only(DIST, "*.tar.gz")) as archive:
            (file,) = [file for file in archive if file.name.endswith("/bin/playhouse")]
            program = archive.extractfile(file).read()
        for folder in (place.ROOT, place.FOLDER, Path.home() / ".cargo"):
            self.assertNotIn(f"{folder}/".encode(), program)


class Script(unittest.TestCase):
    def package(self, *arguments, path=None):
        command = [sys.executable, place.ROOT / "configs/package", *arguments]
        environment = {**os.environ, "PATH": path} if path else dict(os.environ)
        return subprocess.run(
            command, capture_output=True, text=True, cwd=place.FOLDER, env=environment
        )

    def test_wrong_use_is_an_error(self):
        done = self.package("rpm")
        self.assertEqual((done.returncode, "there is no part rpm" in done.stderr), (2, True))
        done = self.package("--binary", __file__, "tarball")
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_a_target_without_a_library_is_named(self):
        target = "riscv64gc-unknown-linux-gnu"
        done = self.package("--target", target, "tarball")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"rustup target add {target}", done.stderr)

    def test_what_is_missing_is_named_before_the_build(self):
        other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
        done = self.package("--target", f"{other}-unknown-linux-gnu", "image")
        self.assertEqual(done.returncode, 1)
        self.assertIn("made on a machine of that kind", done.stderr)
        # Without Cargo, a build would end with another error.
        done = self.package("deb", path="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install dpkg", done.stderr)


class Unit(unittest.TestCase):
    def test_shell_scripts_are_clean(self):
        if not shutil.which("shellcheck"):
            self.skipTest("there is no shellcheck")
        scripts = [str(path) for path in (place.ROOT / "configs/package/debian").glob("p*")]
        self.assertEqual(len(scripts), 3)
        place.run(["shellcheck", *scripts])


if __name__ == "__main__":
    unittest.main()
