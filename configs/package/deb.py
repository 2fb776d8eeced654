"""The Debian package: program, manual, settings in /etc/playhouse, and the systemd units."""

import gzip
import hashlib
import os
import tempfile
from email.utils import formatdate
from pathlib import Path

from archive import mode_of
from tool import ROOT, PackageError, output, require

DEBIAN = ROOT / "configs/package/debian"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
# Debian's packages of the libraries that programs in Rust and C++ need.
PACKAGES = {
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
}
LIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux")
MAINTAINER = "The Playhouse authors <noreply@playhouse-engine.invalid>"
# Files of the common tree that have another place here, or none.
MOVED = {
    "share/zsh/site-functions/_playhouse": "share/zsh/vendor-completions/_playhouse",
    "share/doc/playhouse/LICENSE": None,
    "share/doc/playhouse/playhouse.toml": None,
}
CHANGELOG = """\
playhouse ({version}) unstable; urgency=medium

  * See CHANGELOG.md.gz.

 -- {maintainer}  {date}
"""
CONTROL = """\
Package: playhouse
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Recommends: ca-certificates
Section: science
Priority: optional
Homepage: {homepage}
Description: inference server for large language models
 Playhouse runs large language models on CPUs and GPUs, and answers through
 OpenAI's API. It is a system of supervised actors: when a part of it fails,
 that part is replaced, and running answers continue.
 .
 The systemd service playhouse.service is installed and not started. Its first
 API key is in /etc/playhouse/keys. With playhouse.socket, no connection is
 refused while the service restarts.
"""


def depends(elf):
    """Returns the packages that the program needs, with the version of glibc."""
    found = ["libc6 (>= {}.{})".format(*elf.glibc)]
    for library in elf.libraries:
        if library.startswith(LIBC):
            continue
        if library not in PACKAGES:
            raise PackageError(f"deb: no package is known that has {library}")
        found.append(PACKAGES[library])
    return ", ".join(found)


UNITS = ("playhouse.service", "playhouse.socket")


def unit(name):
    """Returns a systemd unit, for the program's place in the package."""
    text = (ROOT / "configs" / name).read_text()
    # The lines before it explain how to install it by hand.
    _, begin, rest = text.partition("[Unit]")
    return (begin + rest).replace("/usr/local/bin/", "/usr/bin/").encode()


def zipped(content):
    """Returns `content` as Debian wants manuals and change logs."""
    return gzip.compress(content, 9, mtime=0)


def files(release):
    """Returns the package's files by path."""
    tree = {}
    for path, content in release.files.items():
        path = MOVED.get(path, path)
        if path is None:
            continue
        is_text = path.startswith("share/man/") or path.endswith(("CHANGELOG.md", "LICENSES.txt"))
        tree[f"usr/{path}{'.gz' if is_text else ''}"] = zipped(content) if is_text else content
    doc = "usr/share/doc/playhouse"
    date = formatdate(release.epoch)
    changes = CHANGELOG.format(version=release.version, maintainer=MAINTAINER, date=date)
    tree[f"{doc}/changelog.gz"] = zipped(changes.encode())
    tree[f"{doc}/copyright"] = (DEBIAN / "copyright").read_bytes()
    tree.update({f"usr/lib/systemd/system/{name}": unit(name) for name in UNITS})
    tree["etc/playhouse/playhouse.toml"] = release.files["share/doc/playhouse/playhouse.toml"]
    return tree


def put(folder, path, content, mode):
    """Writes a file below `folder`."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    place.chmod(mode)


def check(machine):
    """Checks that a package for `machine` can be made here."""
    require("dpkg-deb", "dpkg")
    if machine not in ARCHITECTURE:
        known = ", ".join(ARCHITECTURE)
        raise PackageError(f"deb: the machine is {machine}, expected one of {known}")


def write(release, out):
    """Writes the package into the folder `out`, and returns its path."""
    check(release.elf.machine)
    tree = files(release)
    architecture = ARCHITECTURE[release.elf.machine]
    control = CONTROL.format(
        version=release.version,
        architecture=architecture,
        maintainer=MAINTAINER,
        size=sum(len(content) for content in tree.values()) // 1024 + 1,
        depends=depends(release.elf),
        homepage=release.repository,
    )
    checked = [path for path in sorted(tree) if path.startswith("usr/")]
    sums = [f"{hashlib.md5(tree[path]).hexdigest()}  {path}\n" for path in checked]
    path = out / f"playhouse_{release.version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder) / "root"
        for name, content in tree.items():
            put(folder, name, content, mode_of(name.removeprefix("usr/")))
        put(folder, "DEBIAN/control", control.encode(), 0o644)
        put(folder, "DEBIAN/conffiles", b"/etc/playhouse/playhouse.toml\n", 0o644)
        put(folder, "DEBIAN/md5sums", "".join(sums).encode(), 0o644)
        for script in ("postinst", "prerm", "postrm"):
            text = (DEBIAN / script).read_bytes()
            put(folder, f"DEBIAN/{script}", text, 0o755)
        for place in [folder, *folder.rglob("*")]:
            os.utime(place, (release.epoch, release.epoch))
        # The bytes of xz depend on the number of its threads. With one thread, level 6 takes
        # minutes for a program of this size, and saves little.
        fixed = {"SOURCE_DATE_EPOCH": str(release.epoch), "DPKG_DEB_THREADS_MAX": "1"}
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(folder), str(path)]
        output(*command, env={**os.environ, **fixed})
    return path
