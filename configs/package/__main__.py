"""Packages of Playhouse: python3 configs/package [--binary FILE] [--target TRIPLE] [PART…]

Builds the program, or takes the one that is given, and makes packages of it in `--out`:

- tarball: the program, its manual, completions, licences and SBOM, laid out as under /usr/local
- wheel:   the same for `pip install`
- deb:     the same for Debian and Ubuntu, with the systemd unit
- image:   a container image, for `docker load` and `podman load`
- sbom:    the crates in the program, as CycloneDX
- all:     all of them (the default), and SHA256SUMS; for another machine without the image

The same commit, toolchain and system give the same bytes. Needs Python 3.9, git and binutils. The
part deb also needs dpkg, and the part image ca-certificates.
"""

import argparse
import hashlib
import os
import platform
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import deb
import image
import sbom
import tarball
import wheel
from release import Release
from tool import PackageError

PARTS = {
    "tarball": tarball.write,
    "wheel": wheel.write,
    "deb": deb.write,
    "image": image.write,
    "sbom": sbom.write,
}
# The needs of a part. A build takes long, so they are checked before.
CHECKS = {"deb": deb.check, "image": image.check}


def arguments():
    parser = argparse.ArgumentParser(
        prog="configs/package",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to make (all)")
    parser.add_argument("--binary", type=Path, metavar="FILE", help="package this program")
    parser.add_argument("--target", metavar="TRIPLE", help="build for this target (the host)")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="FOLDER", help="(dist)")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in {*PARTS, "all"}]
    if unknown:
        parser.error(f"there is no part {unknown[0]}: {', '.join(PARTS)}, all")
    if given.binary and given.target:
        parser.error("--target builds, and --binary is built already")
    given.machine = given.target.split("-")[0] if given.target else platform.machine()
    if not given.parts or "all" in given.parts:
        is_foreign = given.machine != platform.machine() and "image" not in given.parts
        given.parts = [part for part in PARTS if part != "image" or not is_foreign]
    return given


def write_sums(folder):
    """Writes the checksums of all packages in `folder`, as sha256sum does."""
    packages = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in packages]
    (folder / "SHA256SUMS").write_text("".join(lines))


def main():
    given = arguments()
    os.umask(0o022)
    if not given.binary:
        for part in given.parts:
            CHECKS.get(part, lambda _: None)(given.machine)
    release = Release.of(given.binary, given.target)
    given.out.mkdir(parents=True, exist_ok=True)
    for part in dict.fromkeys(given.parts):
        path = PARTS[part](release, given.out)
        print(f"{path.stat().st_size:>12,}  {path}", flush=True)
    write_sums(given.out)


if __name__ == "__main__":
    try:
        main()
    except PackageError as error:
        sys.exit(f"error: {error}")
