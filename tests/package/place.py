"""Where the packages under test are made, and how their programs run."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPORARY = tempfile.TemporaryDirectory(prefix="playhouse-package-")
FOLDER = Path(TEMPORARY.name)
QUESTION = "Who are you?"
# With its path, because programs run with the variables of another system.
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"


@functools.cache
def checkout(name):
    """Returns a new checkout of HEAD, in a folder called `name`."""
    path = FOLDER / name / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(path)], check=True)
    return path


@functools.cache
def packages(name):
    """Makes all packages in a new checkout called `name`. Returns the folder with them.

    The variable PLAYHOUSE names the program. Without it, each checkout builds its own one.
    """
    command = [sys.executable, str(checkout(name) / "configs/package")]
    out, target = FOLDER / name / "dist", FOLDER / name / "target"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "TZ": "Asia/Tokyo"}
    program = os.environ.get("PLAYHOUSE")
    if program:
        copy = shutil.copy(program, FOLDER / name / "program")
        command += ["--binary", str(copy)]
    command += ["--out", str(out), "all"]
    subprocess.run(command, check=True, env=environment, cwd=FOLDER / name)
    return out


def tested():
    """Returns the folder of the tested packages: that in the variable PACKAGES, or new ones."""
    given = os.environ.get("PACKAGES")
    return Path(given).resolve() if given else packages("first")


def only(folder, pattern):
    """Returns the only file of `folder` that has the pattern."""
    (found,) = folder.glob(pattern)
    return found


def empty_home():
    """Returns an environment whose home is empty and that has no settings."""
    home = tempfile.mkdtemp(prefix="home-", dir=FOLDER)
    return {"HOME": home, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def offline(*command, **options):
    """Runs `command` without a network. Returns its output."""
    private = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    done = run([*private, *map(str, command)], **options)
    return done.stdout


def run(command, **options):
    """Runs a command that must succeed."""
    options.setdefault("env", empty_home())
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def asks(*program):
    """Asks the demo model a question and lets it continue a text. Returns the answer."""
    answer = offline(*program, "chat", "-q", QUESTION, "--temperature", "0")
    text = offline(*program, "generate", "--max-tokens", "8", "Once upon a time")
    if not answer.strip() or not text.strip():
        raise AssertionError(f"the program says nothing: {answer!r}, {text!r}")
    return answer


class Server:
    """A running server, until the block ends."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
        log = ""
        for line in self.process.stderr:
            log += line
            found = re.search(r" on http://[^:]+:(\d+)", line)
            if found:
                self.port = int(found[1])
            if line.startswith("Try:"):
                return
        code = self.process.wait()
        raise AssertionError(f"the server has ended: exit {code}\n{log}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.code = self.process.wait(timeout=60)

    def status(self, path, key=None):
        """Returns the status of an answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
