"""Each package is installed as a user would, with an empty home and no network, and answers."""

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import place

IMAGE_BYTES_MAX = 150_000_000
# systemd's score of a unit, from 0 (safe) to 100.
EXPOSURE_MAX = 20
needs_root = unittest.skipUnless(os.geteuid() == 0, "needs root")


def setUpModule():
    global DIST
    DIST = place.tested()


def folder():
    """Returns a new folder."""
    return Path(tempfile.mkdtemp(dir=place.FOLDER))


@contextlib.contextmanager
def mounted_proc(root):
    """Mounts /proc below `root`, as each system and each container has it."""
    (root / "proc").mkdir(exist_ok=True)
    place.run(["mount", "-t", "proc", "proc", root / "proc"])
    try:
        yield
    finally:
        place.run(["umount", root / "proc"])


class Tarball(unittest.TestCase):
    def test_it_runs_where_it_is_unpacked(self):
        prefix = folder()
        archive = place.only(DIST, "*.tar.gz")
        place.run(["tar", "xf", archive, "--strip-components=1", "-C", prefix])
        place.asks(prefix / "bin/playhouse")
        page = prefix / "share/man/man1/playhouse.1"
        self.assertIn(".SH NAME", page.read_text())


class Wheel(unittest.TestCase):
    def test_pip_installs_it(self):
        venv = folder() / "venv"
        place.run([sys.executable, "-m", "venv", venv])
        wheel = place.only(DIST, "*.whl")
        # Without a network, so no other package is needed.
        place.offline(venv / "bin/pip", "install", "--no-index", wheel)
        place.asks(venv / "bin/playhouse")
        self.assertTrue((venv / "share/man/man1/playhouse-serve.1").exists())
        place.offline(venv / "bin/pip", "uninstall", "--yes", "playhouse")
        self.assertFalse((venv / "bin/playhouse").exists())


class Unit(unittest.TestCase):
    def setUp(self):
        self.root = folder()
        place.run(["dpkg-deb", "-x", place.only(DIST, "*.deb"), self.root])
        self.unit = self.root / "usr/lib/systemd/system/playhouse.service"

    def test_it_runs_unpacked(self):
        place.asks(self.root / "usr/bin/playhouse")

    def test_its_service_is_hardened(self):
        command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}"]
        place.run([*command, self.unit])

    def test_its_service_starts_the_packaged_program(self):
        self.assertIn("ExecStart=/usr/bin/playhouse serve", self.unit.read_text())

    def test_its_service_has_a_folder_for_models(self):
        # The user of the service has no home. systemd makes this folder below %C for it.
        unit = self.unit.read_text()
        self.assertIn("CacheDirectory=playhouse\n", unit)
        self.assertIn("Environment=HF_HOME=%C/playhouse\n", unit)

    @unittest.skipUnless(shutil.which("lintian"), "there is no lintian")
    def test_lintian_finds_no_error(self):
        allowed = [
            # Crates are linked statically, as in every program in Rust.
            "embedded-library",
            # Symbols are the names in the backtrace of a panic.
            "unstripped-binary-or-object",
        ]
        command = ["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags"]
        place.run([*command, ",".join(allowed), place.only(DIST, "*.deb")])


@needs_root
@unittest.skipUnless(shutil.which("debootstrap"), "there is no debootstrap")
class Debian(unittest.TestCase):
    """The package in a Debian of its own."""

    @classmethod
    def setUpClass(cls):
        cache = Path.home() / ".cache/playhouse-debian"
        if not (cache / "complete").exists():
            shutil.rmtree(cache, ignore_errors=True)
            cache.parent.mkdir(parents=True, exist_ok=True)
            command = ["debootstrap", "--variant=minbase", "--include=systemd", "bookworm", cache]
            place.run(command, env=dict(os.environ))
            (cache / "complete").touch()
        cls.root = folder() / "debian"
        place.run(["cp", "-a", cache, cls.root])
        deb = place.only(DIST, "*.deb")
        shutil.copy(deb, cls.root / "playhouse.deb")

    def inside(self, *command):
        """Runs a command in that Debian, without a network. Returns its output."""
        proc = f"--mount-proc={self.root}/proc"
        private = [shutil.which("unshare"), "--net", "--pid", "--fork", "--mount", proc]
        environment = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return place.run([*private, place.CHROOT, self.root, *command], env=environment).stdout

    def test_life_of_the_package(self):
        self.inside("dpkg", "-i", "/playhouse.deb")
        self.assertEqual(self.inside("dpkg", "-V", "playhouse"), "")
        self.assertTrue(self.inside("playhouse", "chat", "-q", place.QUESTION).strip())
        for unit in ("playhouse.service", "playhouse.socket"):
            self.inside("systemd-analyze", "verify", f"/usr/lib/systemd/system/{unit}")
        # Installed, and not enabled.
        self.assertEqual(list(self.root.glob("etc/systemd/system/*.wants/playhouse.*")), [])
        self.first_key_opens_the_server()
        keys = self.root / "etc/playhouse/keys"
        first = keys.read_text()
        settings = self.root / "etc/playhouse/playhouse.toml"
        settings.write_text(settings.read_text() + "\n# Mine.\n")
        self.inside("dpkg", "-i", "/playhouse.deb")
        self.assertIn("# Mine.", settings.read_text())
        self.assertEqual(keys.read_text(), first)
        self.inside("dpkg", "-r", "playhouse")
        self.assertTrue(settings.exists() and keys.exists())
        self.inside("dpkg", "-P", "playhouse")
        self.assertFalse((self.root / "etc/playhouse").exists())
        left = [path for path in self.root.rglob("*playhouse*") if "var/lib/dpkg" not in str(path)]
        self.assertEqual([path.name for path in left], ["playhouse.deb"])

    def first_key_opens_the_server(self):
        """Starts the server as the unit does, and tries its routes with and without the key."""
        keys = self.root / "etc/playhouse/keys"
        self.assertEqual(stat.S_IMODE(keys.stat().st_mode), 0o600)
        unit = (self.root / "usr/lib/systemd/system/playhouse.service").read_text()
        command = re.search(r"(?m)^ExecStart=(.+)$", unit)[1].split()
        command = [word.replace("${CREDENTIALS_DIRECTORY}", "/etc/playhouse") for word in command]
        with mounted_proc(self.root):
            self.opens(command, keys.read_text().strip())

    def opens(self, command, key):
        with place.Server([place.CHROOT, self.root, *command, "--port", "0"], env={}) as server:
            self.assertEqual(server.status("/v1/models"), 401)
            self.assertEqual(server.status("/v1/models", key), 200)


@needs_root
class Image(unittest.TestCase):
    def setUp(self):
        self.path = place.only(DIST, "*-image.tar")
        with tarfile.open(self.path) as archive:
            read = lambda name: archive.extractfile(name).read()
            (self.manifest,) = json.loads(read("manifest.json"))
            self.config = json.loads(read(self.manifest["Config"]))
            (layer,) = self.manifest["Layers"]
            self.root = folder() / "root"
            self.root.mkdir()
            (self.root.parent / "layer").write_bytes(read(layer))
        place.run(["tar", "xf", self.root.parent / "layer", "-C", self.root])
        # Containers have it.
        null = self.root / "dev/null"
        null.parent.mkdir()
        os.mknod(null, stat.S_IFCHR, os.makedev(1, 3))
        null.chmod(0o666)

    def inside(self):
        """Returns the beginning of a command in the image, as its user, and its variables."""
        settings = self.config["config"]
        user = [place.CHROOT, f"--userspec={settings['User']}", str(self.root)]
        return user, dict(variable.split("=", 1) for variable in settings["Env"])

    def test_it_is_small(self):
        size = sum(path.lstat().st_size for path in self.root.rglob("*") if path.is_file())
        print(f"\nimage: {size:,} bytes, packed {self.path.stat().st_size:,}")
        self.assertLess(size, IMAGE_BYTES_MAX)

    def test_its_user_can_keep_models_in_a_volume(self):
        cache = (self.root / "home/playhouse/.cache").stat()
        user, group = self.config["config"]["User"].split(":")
        self.assertEqual((cache.st_uid, cache.st_gid), (int(user), int(group)))
        self.assertEqual(stat.S_IMODE(cache.st_mode), 0o700)

    def test_it_answers(self):
        user, variables = self.inside()
        entry = self.config["config"]["Entrypoint"]
        command = [*user, *entry, "chat", "-q", place.QUESTION]
        answer = place.run([shutil.which("unshare"), "--net", *command], env=variables).stdout
        self.assertTrue(answer.strip())

    def test_its_health_is_that_of_its_server(self):
        user, variables = self.inside()
        settings = self.config["config"]
        kind, *check = settings["Healthcheck"]["Test"]
        self.assertEqual(kind, "CMD")
        with socket.create_server(("127.0.0.1", 0)) as free:
            variables["PLAYHOUSE_PORT"] = str(free.getsockname()[1])

        def health():
            return subprocess.run([*user, *check], env=variables, capture_output=True).returncode

        self.assertNotEqual(health(), 0)
        command = [*user, *settings["Entrypoint"], *settings["Cmd"]]
        with mounted_proc(self.root), place.Server(command, env=variables) as server:
            self.assertEqual(server.status("/v1/models"), 200)
            self.assertEqual(health(), 0)
        self.assertEqual(server.code, 0)
        self.assertNotEqual(health(), 0)

    def test_its_health_is_that_of_the_dockerfile(self):
        dockerfile = (place.ROOT / "configs/Dockerfile").read_text()
        check = self.config["config"]["Healthcheck"]["Test"][1:]
        self.assertIn(f"CMD {json.dumps(check)}\n", dockerfile)

    @unittest.skipUnless(shutil.which("skopeo"), "there is no skopeo")
    def test_other_tools_read_it(self):
        # It checks the hashes, and reads the settings from the archive.
        command = ["skopeo", "--insecure-policy", "--tmpdir", folder()]
        place.run([*command, "copy", "--quiet", f"docker-archive:{self.path}", f"dir:{folder()}"])
        shown = place.run([*command, "inspect", "--config", f"docker-archive:{self.path}"]).stdout
        self.assertEqual(json.loads(shown)["config"]["User"], "10001:10001")

    @unittest.skipUnless(shutil.which("podman"), "there is no podman")
    def test_podman_loads_it_with_its_health_check(self):
        store = folder()
        podman = ["podman", "--root", store / "images", "--runroot", store / "run"]
        place.run([*podman, "load", "--quiet", "--input", self.path])
        (image,) = json.loads(place.run([*podman, "inspect", self.manifest["RepoTags"][0]]).stdout)
        self.assertEqual(image["Healthcheck"]["Test"], self.config["config"]["Healthcheck"]["Test"])


class OtherMachine(unittest.TestCase):
    TARGET = "aarch64-unknown-linux-gnu"

    def test_it_is_built_here_and_runs_under_qemu(self):
        command = ["rustc", "--print", "target-libdir", "--target", self.TARGET]
        libraries = place.run(command, env=dict(os.environ)).stdout.strip()
        if not Path(libraries).is_dir() or os.environ.get("PLAYHOUSE"):
            self.skipTest(f"Rust's library for {self.TARGET} is missing, or nothing is built")
        out = folder()
        script = place.checkout("other") / "configs/package"
        command = [sys.executable, script, "--target", self.TARGET, "--out", out, "tarball", "deb"]
        # The script runs the program under qemu, which prints its manual.
        place.run(command, env=dict(os.environ))
        self.assertTrue(place.only(out, "*_arm64.deb"))


if __name__ == "__main__":
    unittest.main()
