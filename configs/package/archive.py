"""Archives whose bytes depend on their content alone."""

import gzip
import io
import tarfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A file, folder or link in an archive. Folders end with a slash."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    owner: int = 0


def tar(entries, epoch):
    """Returns a tar archive of `entries`, and of the folders above them."""
    given = {entry.path: entry for entry in entries}
    for path in list(given):
        parts = path.rstrip("/").split("/")[:-1]
        for end in range(1, len(parts) + 1):
            folder = "/".join(parts[:end]) + "/"
            given.setdefault(folder, Entry(folder, mode=0o755))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, entry in sorted(given.items()):
            info = tarfile.TarInfo(path.rstrip("/"))
            info.mode, info.mtime = entry.mode, epoch
            info.uid = info.gid = entry.owner
            if path.endswith("/"):
                info.type = tarfile.DIRTYPE
            elif entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            else:
                info.size = len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content))
    return buffer.getvalue()


def compressed(content):
    """Returns `content` in gzip's format, without name and time."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def mode_of(path):
    """Returns the mode of a packaged file."""
    return 0o755 if path.startswith("bin/") else 0o644
