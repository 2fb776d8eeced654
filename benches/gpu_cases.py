#!/usr/bin/env python3
"""Runs the engine on a GPU in each case of `tests/cuda`: every kernel, in every format.

    python benches/gpu_cases.py target/release/playhouse [--device cuda] [--jobs 4] [--case NAME …]

Prints a line for each case: its seconds with the start, or its error. The exit code is 1 if one
failed. Cases run beside each other, so their times are not those of the kernels.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cuda"))

from cases import CASES, Case  # noqa: E402


def run(program: Path, device: str, case: Case, seconds_max: float) -> str | None:
    """Runs a case. Returns the end of what it said if it failed."""
    arguments = list(case.arguments)
    arguments[arguments.index("--device") + 1] = device
    with tempfile.TemporaryDirectory() as folder:
        if case.requests:
            requests, answers = Path(folder) / "requests", Path(folder) / "answers"
            requests.write_text("".join(json.dumps(line) + "\n" for line in case.requests))
            arguments += ["--input-file", str(requests), "--output-file", str(answers)]
        command = [program, *arguments]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=seconds_max
            )
        except subprocess.TimeoutExpired:
            return f"more than {seconds_max:.0f} s"
        answered = answers.read_text() if case.requests and answers.exists() else ""
    return (done.stdout + done.stderr + answered)[-2000:] if done.returncode else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seconds-max", type=float, default=120, help="of a case")
    options = parser.parse_args()
    program = options.program.resolve()

    def timed(name: str) -> tuple[str, float, str | None]:
        begun = time.monotonic()
        error = run(program, options.device, CASES[name], options.seconds_max)
        return name, time.monotonic() - begun, error

    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, seconds, error in pool.map(timed, options.case):
            failed += error is not None
            print(f"{name:<28} {seconds:6.1f} s  {'failed' if error else 'ok'}", flush=True)
            if error:
                print(error, flush=True)
    print(f"{len(options.case) - failed} of {len(options.case)} cases passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
