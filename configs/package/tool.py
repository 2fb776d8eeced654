"""Runs the tools that packages are made with."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class PackageError(Exception):
    """A package cannot be made, for a reason that the user can remove."""


def require(program, package):
    """Returns the path of `program`, which Debian's `package` has."""
    path = shutil.which(program)
    if path is None:
        raise PackageError(f"there is no {program}: apt-get install {package}")
    return path


def output(*command, **options):
    """Returns what `command` prints."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, **options)
    except FileNotFoundError:
        raise PackageError(f"there is no {command[0]}") from None
    except subprocess.CalledProcessError as error:
        raise PackageError(f"{' '.join(map(str, command))}: exit {error.returncode}") from None
    return done.stdout
