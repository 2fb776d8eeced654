"""Makes sounds in further formats with ffmpeg, and records how ffmpeg decodes them.

    python tests/fidelity/make_sounds.py         # into tests/fidelity/speech/formats and opus
    python tests/fidelity/make_sounds.py opus    # into tests/fidelity/speech/opus alone

`golden.json` has, for each file, the number of samples and some of them. The sound is that of
`speech/rising.wav`. Of other codecs than Opus, samples that an edit list leaves out are kept. Opus
has 48,000 samples a second, and libopus decodes it.

Needs: ffmpeg, numpy.
"""

import json
import shutil
import subprocess
import sys
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
}
STEP = 61
TONE = ["-f", "lavfi", "-i", "sine=frequency=330:duration=1:sample_rate=16000"]
STEREO = TONE + ["-filter_complex", "[0:a][1:a]join=inputs=2:channel_layout=stereo"]
SURROUND = TONE + [
    "-filter_complex",
    "[0:a][1:a]join=inputs=2:channel_layout=stereo,pan=5.1|c0=c0|c1=c1|c2=c0|c3=c1|c4=c0|c5=c1",
]
# Speech at low rates is of SILK, at higher ones of both codecs, and music is of CELT.
OPUS = {
    "silk.ogg": ["-b:a", "8k", "-application", "voip"],
    "silk_60ms.ogg": ["-b:a", "8k", "-application", "voip", "-frame_duration", "60"],
    "silk_stereo.ogg": STEREO + ["-b:a", "12k", "-application", "voip"],
    "hybrid.webm": ["-b:a", "28k", "-application", "voip"],
    "hybrid_10ms.ogg": ["-b:a", "32k", "-application", "voip", "-frame_duration", "10"],
    "hybrid_stereo.webm": STEREO + ["-b:a", "36k", "-application", "voip"],
    "celt.ogg": ["-b:a", "40k"],
    "celt_2_5ms.ogg": ["-b:a", "32k", "-application", "lowdelay", "-frame_duration", "2.5"],
    "celt_stereo.webm": STEREO + ["-b:a", "48k"],
    "celt_120ms.ogg": STEREO + ["-b:a", "40k", "-frame_duration", "120"],
    "surround.ogg": SURROUND + ["-b:a", "64k"],
    "video.webm": VIDEO + ["-map", "1:v", "-map", "0:a", "-c:v", "libvpx", "-b:a", "16k"],
    # A recording, whose parts do not say where they end.
    "live.webm": ["-b:a", "24k", "-live", "1"],
    "opus.mp4": ["-b:a", "16k", "-strict", "-2"],
}


def ffmpeg(*arguments):
    start = ["ffmpeg", "-v", "error", "-y"]
    return subprocess.run([*start, *map(str, arguments)], check=True, capture_output=True).stdout


def make(out, name, options):
    exact = ["-fflags", "+bitexact", "-flags", "+bitexact", "-map_metadata", "-1"]
    ffmpeg("-i", SOUND, *options, *exact, out / name)
    return out / name


def golden_of(samples):
    values = [float(f"{x:.6g}") for x in samples[::STEP].tolist()]
    return dict(count=len(samples), step=STEP, values=values)


def make_formats():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    golden = {}
    for name, options in FILES.items():
        path = make(OUT, name, (VIDEO if name.startswith("video") else []) + options)
        ignore = ["-ignore_editlist", "1"] if path.suffix in (".m4a", ".mp4") else []
        raw = ffmpeg(*ignore, "-i", path, "-map", "0:a", "-f", "f32le", "-ac", "1", "-")
        golden[name] = golden_of(np.frombuffer(raw, "<f4"))
    (OUT / "golden.json").write_text(json.dumps(golden) + "\n")


def make_opus():
    out = OUT.parent / "opus"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    golden = {}
    for name, options in OPUS.items():
        # At the rate of the sound, there are no high frequencies for CELT.
        rate = [] if name.endswith(".mp4") else ["-ar", "48000"]
        path = make(out, name, options + rate + ["-c:a", "libopus"])
        # ffmpeg takes the edit list of an MP4 file to be of another rate.
        ignore = ["-ignore_editlist", "1"] if path.suffix == ".mp4" else []
        raw = ffmpeg("-c:a", "libopus", *ignore, "-i", path, "-map", "0:a", "-f", "f32le", "-")
        channels = {"stereo": 2, "120ms": 2, "surround": 6}
        channels = next((count for part, count in channels.items() if part in name), 1)
        samples = np.frombuffer(raw, "<f4").reshape(-1, channels).mean(axis=1)
        # Of MP4 files, ffmpeg keeps what is behind the sound.
        assert len(samples) == 48_000 or path.suffix == ".mp4", (name, len(samples))
        golden[name] = golden_of(samples[:48_000])
    (out / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    if sys.argv[1:] != ["opus"]:
        make_formats()
    make_opus()


if __name__ == "__main__":
    main()
