"""The tarball: all files below one folder, for any prefix."""

from archive import Entry, compressed, mode_of, tar


def write(release, out):
    """Writes the tarball into the folder `out`, and returns its path."""
    # `cargo binstall` expects these names: see `package.metadata.binstall` in Cargo.toml.
    name = f"playhouse-{release.version}-{release.target}"
    entries = [
        Entry(f"{name}/{path}", content, mode_of(path)) for path, content in release.files.items()
    ]
    path = out / f"{name}.tar.gz"
    path.write_bytes(compressed(tar(entries, release.epoch)))
    return path
