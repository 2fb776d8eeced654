"""The wheel: `pip install` puts the program into `bin`, and its manual into `share`."""

import base64
import hashlib
import stat
import time
import zipfile

from archive import mode_of
from tool import ROOT

METADATA = """\
Metadata-Version: 2.4
Name: playhouse
Version: {version}
Summary: {description}
License-Expression: Apache-2.0
License-File: LICENSE
Project-URL: Source, {repository}
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""


def tag(release):
    """Returns the tag of the systems that can run the program."""
    major, minor = release.elf.glibc
    return f"py3-none-manylinux_{major}_{minor}_{release.elf.machine}"


def content(release):
    """Returns content and mode of each file, by path in the wheel."""
    name = f"playhouse-{release.version}"
    found = {}
    for path, data in release.files.items():
        kind = path.replace("bin/", "scripts/", 1) if path.startswith("bin/") else f"data/{path}"
        found[f"{name}.data/{kind}"] = (data, mode_of(path))
    readme = (ROOT / "README.md").read_text()
    facts = {name: getattr(release, name) for name in ("version", "description", "repository")}
    info = f"{name}.dist-info"
    found[f"{info}/METADATA"] = (METADATA.format(**facts, readme=readme).encode(), 0o644)
    kind = (
        f"Wheel-Version: 1.0\nGenerator: playhouse\nRoot-Is-Purelib: false\nTag: {tag(release)}\n"
    )
    found[f"{info}/WHEEL"] = (kind.encode(), 0o644)
    found[f"{info}/licenses/LICENSE"] = (release.files["share/doc/playhouse/LICENSE"], 0o644)
    found[f"{info}/sboms/playhouse.cdx.json"] = (
        release.files["share/doc/playhouse/playhouse.cdx.json"],
        0o644,
    )
    return info, found


def record(info, found):
    """Returns the list of all files with their hashes."""
    lines = []
    for path, (data, _) in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join(lines) + f"{info}/RECORD,,\n"


def write(release, out):
    """Writes the wheel into the folder `out`, and returns its path."""
    info, found = content(release)
    found[f"{info}/RECORD"] = (record(info, found).encode(), 0o644)
    path = out / f"playhouse-{release.version}-{tag(release)}.whl"
    # Zip archives know no earlier time.
    date = max(time.gmtime(release.epoch)[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in found.items():
            file = zipfile.ZipInfo(name, date)
            file.create_system = 3
            file.external_attr = (stat.S_IFREG | mode) << 16
            file.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(file, data)
    return path
