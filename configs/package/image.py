"""The container image: the program and the libraries it needs, for docker, podman and containerd.

The archive has the format of `docker save`. Images in OCI's format have no health check.
"""

import hashlib
import json
import os
import platform
import re
import time
from pathlib import Path

from archive import Entry, compressed, tar
from tool import PackageError, output

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
USER = 10001
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
HOME = "/home/playhouse"
# The same as in configs/Dockerfile. It asks `/livez`, which fails only if a restart helps.
HEALTH = ["playhouse", "health"]
SECOND = 10**9


def libraries(program):
    """Returns the paths of the shared libraries of a program of this machine, and its loader."""
    text = output("ldd", str(program), env={**os.environ, "LC_ALL": "C"}).decode()
    missing = re.findall(r"^\s*(\S+) => not found", text, re.M)
    if missing:
        raise PackageError(f"image: {', '.join(missing)} is not installed")
    return sorted(set(re.findall(r"(/\S+) \(0x", text)))


def entries(release):
    """Returns the files of the image."""
    found = [
        Entry("usr/bin/playhouse", release.files["bin/playhouse"], 0o755),
        Entry("tmp/", mode=0o1777),
        Entry(f"{HOME[1:]}/", mode=0o700, owner=USER),
        # A new volume over it gets its owner.
        Entry(f"{HOME[1:]}/.cache/", mode=0o700, owner=USER),
        Entry(str(CERTIFICATES)[1:], CERTIFICATES.read_bytes()),
        Entry(
            "etc/passwd",
            f"root:x:0:0::/:\nplayhouse:x:{USER}:{USER}::{HOME}:\n".encode(),
        ),
        Entry("etc/group", f"root:x:0:\nplayhouse:x:{USER}:\n".encode()),
        Entry("etc/nsswitch.conf", b"hosts: files dns\n"),
    ]
    for path in libraries(release.program):
        found.append(Entry(path[1:], Path(path).read_bytes(), 0o755))
    for path, content in release.files.items():
        is_doc = path.startswith("share/doc/") and "README" not in path and "CHANGELOG" not in path
        if is_doc or path.startswith("share/playhouse/"):
            found.append(Entry(f"usr/{path}", content))
    return found


def config(release, layer):
    """Returns the configuration of the image, whose only layer is `layer`."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    label = "org.opencontainers.image"
    return {
        "architecture": ARCHITECTURE[release.elf.machine],
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin:/bin", f"HOME={HOME}"],
            "Entrypoint": ["/usr/bin/playhouse"],
            "Cmd": ["serve", "--host", "0.0.0.0"],
            "WorkingDir": HOME,
            "ExposedPorts": {"8000/tcp": {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", *HEALTH],
                "Interval": 30 * SECOND,
                "Timeout": 10 * SECOND,
                "StartPeriod": 60 * SECOND,
                "Retries": 3,
            },
            "Labels": {
                f"{label}.title": "playhouse",
                f"{label}.description": release.description,
                f"{label}.licenses": "Apache-2.0",
                f"{label}.revision": release.commit,
                f"{label}.source": release.repository,
                f"{label}.version": release.version,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
        "history": [{"created": created, "created_by": "configs/package"}],
    }


def digest(content):
    """Returns the hash by which others find `content`."""
    return hashlib.sha256(content).hexdigest()


def encoded(value):
    """Returns JSON that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def check(machine):
    """Checks that an image for `machine` can be made here."""
    if machine != platform.machine():
        raise PackageError(
            f"image: an image for {machine} is made on a machine of that kind, "
            "because it has the libraries of that machine"
        )
    if not CERTIFICATES.exists():
        raise PackageError(f"there is no {CERTIFICATES}: apt-get install ca-certificates")


def write(release, out):
    """Writes the image's archive into the folder `out`, and returns its path."""
    check(release.elf.machine)
    path = out / f"playhouse-{release.version}-{release.target}-image.tar"
    layer = tar(entries(release), release.epoch)
    settings = encoded(config(release, layer))
    # Docker's name of a configuration is its hash.
    names = {"Config": f"{digest(settings)}.json", "Layers": [f"{digest(layer)}.tar.gz"]}
    manifest = [{**names, "RepoTags": [f"playhouse:{release.version}"]}]
    files = [
        Entry(names["Config"], settings),
        Entry(names["Layers"][0], compressed(layer)),
        Entry("manifest.json", encoded(manifest)),
    ]
    path.write_bytes(tar(files, release.epoch))
    return path
