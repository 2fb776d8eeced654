"""The licences of the parts that others have written."""

import re
from pathlib import Path

from tool import ROOT

NAME = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.I)
# A file of another kind only has such a name.
CODE = {".rs", ".c", ".h", ".json", ".toml", ".py", ".html"}
RULE = "-" * 80


def texts(crate):
    """Returns the licences in a crate, also those of the C libraries in it."""
    folder = Path(crate["manifest_path"]).parent
    named = (path for path in folder.rglob("*") if NAME.match(path.name))
    found = {path for path in named if path.is_file() and path.suffix not in CODE}
    if crate["license_file"]:
        found.add(folder / crate["license_file"])
    return [path.read_text(errors="replace").strip() for path in sorted(found)]


def of(crates):
    """Returns a text with each licence once, after the crates that have it."""
    owners, without = {}, []
    for crate in crates:
        name = f"{crate['name']} {crate['version']} ({crate['license'] or 'see below'})"
        found = texts(crate)
        for text in found:
            owners.setdefault(text, []).append(name)
        if not found:
            without.append(name)
    page = ROOT / "src/server/page/vendor/LICENSES.txt"
    parts = ["Playhouse contains the crates below, under their licences."]
    parts += ["\n".join(names) + "\n\n" + text for text, names in owners.items()]
    parts.append("Crates that name a licence and have no text of it:\n\n" + "\n".join(without))
    parts.append("The web page contains:\n\n" + page.read_text().strip())
    return f"\n\n{RULE}\n\n".join(parts).encode() + b"\n"
