"""The program that is packaged, and the files that every package of it has."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import elf
import notices
import sbom
from tool import ROOT, PackageError, output, require

SHELLS = {
    "bash": "share/bash-completion/completions/playhouse",
    "zsh": "share/zsh/site-functions/_playhouse",
    "fish": "share/fish/vendor_completions.d/playhouse.fish",
}


@dataclass(frozen=True)
class Release:
    """A program with the facts that its packages state."""

    version: str
    description: str
    repository: str
    target: str
    commit: str
    # Seconds since 1970 of the commit: the time of every packaged file.
    epoch: int
    elf: elf.Elf
    # Where it is now.
    program: Path
    # Crates in the program, as `cargo metadata` has them.
    crates: tuple
    # Content by path under the prefix, for example bin/playhouse.
    files: dict

    @staticmethod
    def of(binary, target):
        """Returns the release of `binary`, which is built for `target` if it is None."""
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or of_commit("%ct"))
        program = (binary or build(target, epoch)).resolve()
        needs = elf.read(program)
        target = f"{needs.machine}-unknown-linux-gnu"
        root, crates = sbom.crates_of(target)
        release = Release(
            version=root["version"],
            description=root["description"],
            repository=root["repository"],
            target=target,
            commit=of_commit("%H"),
            epoch=epoch,
            elf=needs,
            program=program,
            crates=tuple(crates),
            files={},
        )
        release.files.update(files(release))
        return release


def of_commit(what):
    """Returns a fact about the commit that is packaged, in the format of `git log`."""
    return output("git", "-C", str(ROOT), "log", "-1", f"--format={what}").decode().strip()


def build(target, epoch):
    """Builds the program, and returns its path. No path and no time of the build gets into it."""
    metadata = json.loads(
        output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1", cwd=ROOT)
    )
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    folder = metadata["target_directory"]
    # Later ones win, and the folder of builds may be in the checkout.
    renamed = [(str(ROOT), "/playhouse"), (home, "/cargo"), (folder, "/target")]
    rust = [f"--remap-path-prefix={path}={name}" for path, name in renamed]
    c = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in renamed)
    environment = {**os.environ, "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(rust)}
    # The compiler renames no path in a variable.
    environment["BUILD_SOURCE_TREE"] = "/playhouse"
    # The allocator's options name the time of its build, which C compilers take from here.
    environment["SOURCE_DATE_EPOCH"] = str(epoch)
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = f"{os.environ.get(name, '')} {c}".strip()
    command = ["cargo", "build", "--profile", "dist", "--locked", "--bin", "playhouse"]
    path = Path(folder)
    if target:
        environment |= cross(target)
        command += ["--target", target]
        path /= target
    if subprocess.run(command, cwd=ROOT, env=environment).returncode != 0:
        raise PackageError("the build failed")
    return path / "dist" / "playhouse"


def cross(target):
    """Returns the variables of a build for `target`, whose tools must be installed."""
    libraries = Path(
        output("rustc", "--print", "target-libdir", "--target", target).decode().strip()
    )
    if not libraries.is_dir():
        raise PackageError(f"Rust's library for {target} is missing: rustup target add {target}")
    machine = target.split("-")[0]
    if machine == platform.machine():
        return {}
    linker = f"{machine}-linux-gnu-gcc"
    require(linker, f"g++-{machine}-linux-gnu")
    require(f"{machine}-linux-gnu-g++", f"g++-{machine}-linux-gnu")
    emulator(machine)
    return {f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER": linker}


def emulator(machine):
    """Returns the path of the program that runs programs of another machine."""
    return shutil.which(f"qemu-{machine}-static") or require(f"qemu-{machine}", "qemu-user")


def files(release):
    """Returns the files of all packages."""
    run = [str(release.program)]
    if release.elf.machine != platform.machine():
        machine = release.elf.machine
        run = [emulator(machine), "-L", f"/usr/{machine}-linux-gnu", *run]
    tree = {"bin/playhouse": release.program.read_bytes()}
    # Without variables, because the program reads settings from them.
    for shell, path in SHELLS.items():
        tree[path] = output(*run, "completions", shell, env={})
    tree |= {f"share/man/man1/{name}": page for name, page in manual(run).items()}
    for path in sorted((ROOT / "examples/demo-model/vision").iterdir()):
        tree[f"share/playhouse/demo-vision/{path.name}"] = path.read_bytes()
    doc = "share/doc/playhouse"
    for source in ("README.md", "CHANGELOG.md", "LICENSE", "configs/playhouse.toml"):
        tree[f"{doc}/{Path(source).name}"] = (ROOT / source).read_bytes()
    tree[f"{doc}/THIRD-PARTY-LICENSES.txt"] = notices.of(release.crates)
    tree[f"{doc}/playhouse.cdx.json"] = sbom.of(release)
    return tree


def manual(run):
    """Returns the pages of the manual by their names."""
    with tempfile.TemporaryDirectory() as folder:
        output(*run, "man", "--dir", folder, env={})
        return {page.name: page.read_bytes() for page in sorted(Path(folder).iterdir())}
