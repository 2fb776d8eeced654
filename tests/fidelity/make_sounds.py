"""Makes sounds in further formats with ffmpeg, and records how ffmpeg decodes them.

    python tests/fidelity/make_sounds.py    # into tests/fidelity/speech/formats

`golden.json` has, for each file, the number of samples and some of them. The sound is that of
`speech/rising.wav`. Samples that an edit list leaves out are kept.

Needs: ffmpeg, numpy.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np

SOUND = Path(__file__).parent / "speech" / "rising.wav"
OUT = Path(__file__).parent / "speech" / "formats"
# Noise in place of sound differs from decoder to decoder.
AAC = ["-c:a", "aac", "-b:a", "48k", "-aac_pns", "0"]
VIDEO = ["-f", "lavfi", "-i", "testsrc=size=32x32:rate=5:duration=1"]
FRAGMENTS = ["-movflags", "frag_keyframe+empty_moov+default_base_moof", "-frag_duration", "200000"]
FILES = {
    "aac.m4a": AAC,
    "adts.aac": AAC,
    "fragments.mp4": AAC + FRAGMENTS,
    "video.mp4": AAC + ["-map", "1:v", "-map", "0:a", "-c:v", "mpeg4"],
    "alac.m4a": ["-c:a", "alac"],
    "alac.caf": ["-c:a", "alac"],
    "microsoft.wav": ["-c:a", "adpcm_ms"],
    "ima.wav": ["-c:a", "adpcm_ima_wav"],
    "opus.mp4": ["-c:a", "libopus", "-b:a", "16k", "-strict", "-2"],
}
STEP = 61


def ffmpeg(*arguments):
    start = ["ffmpeg", "-v", "error", "-y"]
    return subprocess.run([*start, *map(str, arguments)], check=True, capture_output=True).stdout


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    golden = {}
    for name, options in FILES.items():
        path = OUT / name
        video = VIDEO if name.startswith("video") else []
        exact = ["-fflags", "+bitexact", "-flags", "+bitexact", "-map_metadata", "-1"]
        ffmpeg("-i", SOUND, *video, *options, *exact, path)
        if name.startswith("opus"):
            continue
        ignore = ["-ignore_editlist", "1"] if path.suffix in (".m4a", ".mp4") else []
        raw = ffmpeg(*ignore, "-i", path, "-map", "0:a", "-f", "f32le", "-ac", "1", "-")
        samples = np.frombuffer(raw, "<f4")
        values = [float(f"{x:.6g}") for x in samples[::STEP].tolist()]
        golden[name] = dict(count=len(samples), step=STEP, values=values)
    (OUT / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
