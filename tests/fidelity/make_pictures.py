"""Records PIL's pixels of JPEG files of many kinds.

    python tests/fidelity/make_pictures.py    # into tests/fidelity/pictures.json

PIL writes the usual kinds. Files whose components have rare sizes, or other colours, are written by
the encoder below, with coefficients drawn at random.

Needs: pillow, numpy. Nothing is downloaded.
"""

import base64
import hashlib
import io
import json
import random
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent


def drawn(width, height):
    """Returns a picture with slopes, an edge and some noise."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 9 % 256, y * 13 % 256, (x * y + 40) % 256], -1)
    pixels[y > x] //= 3
    noise = np.random.default_rng(width * 1000 + height).integers(0, 40, pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def saved(image, **options):
    """Returns the file of a picture."""
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def segments(file):
    """Returns the markers and contents of a file up to its first scan."""
    at = 2
    while True:
        length = int.from_bytes(file[at + 2 : at + 4], "big")
        yield file[at + 1], file[at + 4 : at + 2 + length]
        if file[at + 1] == 0xDA:
            return
        at += 2 + length


class Bits:
    """Writes entropy-coded data."""

    def __init__(self, codes):
        self.codes, self.text = codes, ""

    def symbol(self, table, symbol):
        code, length = self.codes[table][symbol]
        self.text += format(code, f"0{length}b")

    def number(self, value):
        length = abs(value).bit_length()
        if length:
            self.text += format(value if value > 0 else value + (1 << length) - 1, f"0{length}b")

    def done(self):
        text = self.text + "1" * (-len(self.text) % 8)
        data = bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))
        return data.replace(b"\xff", b"\xff\0")


class Encoder:
    """Writes sequential files with the tables of PIL."""

    def __init__(self):
        heads = list(segments(saved(Image.new("RGB", (16, 16)), quality=60)))
        self.tables = [head for head in heads if head[0] in (0xC4, 0xDB)]
        self.codes = {}
        for _, data in (head for head in self.tables if head[0] == 0xC4):
            while data:
                counts, code, at = data[1:17], 0, 17
                table = self.codes.setdefault(data[0], {})
                for length, count in enumerate(counts, 1):
                    for _ in range(count):
                        table[data[at]] = (code, length)
                        code, at = code + 1, at + 1
                    code <<= 1
                data = data[at:]
        self.random = random.Random(1)

    def block(self, bits, is_chroma, before, amplitude):
        """Writes a block. Returns its first coefficient."""
        first = self.random.randint(-amplitude, amplitude)
        bits.symbol(is_chroma, abs(first - before).bit_length())
        bits.number(first - before)
        at = 1
        while at < 64:
            run = self.random.randint(0, 20)
            if at + run > 63:
                bits.symbol(16 + is_chroma, 0)
                break
            if run > 15:
                bits.symbol(16 + is_chroma, 0xF0)
                at, run = at + 16, run - 16
            size = self.random.randint(1, max(1, amplitude // 4))
            value = self.random.choice([-size, size])
            bits.symbol(16 + is_chroma, run << 4 | abs(value).bit_length())
            bits.number(value)
            at += run + 1
        return first

    def file(self, size, samplings, ids, adobe, is_joint, amplitude, restart):
        """Returns a file of components with these samplings and names."""
        (width, height), count = size, len(samplings)
        segment = lambda kind, data: bytes([255, kind, *(len(data) + 2).to_bytes(2, "big")]) + data
        file = b"\xff\xd8"
        if adobe is not None:
            file += segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe]))
        frame = bytes([8]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([count])
        for index, (across, down) in enumerate(samplings):
            frame += bytes([ids[index], across << 4 | down, min(index, 1)])
        file += b"".join(segment(*table) for table in self.tables) + segment(0xC0, frame)
        file += segment(0xDD, restart.to_bytes(2, "big"))
        most = [max(sampling[axis] for sampling in samplings) for axis in (0, 1)]
        for scan in [range(count)] if is_joint else [[index] for index in range(count)]:
            heads = b"".join(bytes([ids[index], 17 * min(index, 1)]) for index in scan)
            file += segment(0xDA, bytes([len(scan)]) + heads + b"\0\x3f\0")
            units = [-(-side // (8 * most[axis])) for axis, side in enumerate(size)]
            if len(scan) == 1:
                own = samplings[scan[0]]
                of_picture = [-(-size[axis] * own[axis] // most[axis]) for axis in (0, 1)]
                units = [-(-side // 8) for side in of_picture]
            bits, before = Bits(self.codes), [0] * count
            for unit in range(units[0] * units[1]):
                if restart and unit and unit % restart == 0:
                    file += bits.done() + bytes([255, 0xD0 + (unit // restart - 1) % 8])
                    bits, before = Bits(self.codes), [0] * count
                for index in scan:
                    across, down = samplings[index]
                    for _ in range(1 if len(scan) == 1 else across * down):
                        first = self.block(bits, min(index, 1), before[index], amplitude)
                        before[index] = first
            file += bits.done()
        return file + b"\xff\xd9"


def files():
    """Returns names and files."""
    for width, height in [(1, 1), (3, 2), (17, 33), (40, 25)]:
        image = drawn(width, height)
        for sampling in ["4:4:4", "4:2:2", "4:2:0"]:
            for progressive in [False, True]:
                name = f"{width} x {height}, {sampling}, {progressive=}"
                options = {"subsampling": sampling, "progressive": progressive}
                yield name, saved(image, quality=70 + width // 2, **options)
    image = drawn(29, 21)
    yield "restarts", saved(image, restart_marker_blocks=2)
    yield "progressive restarts", saved(image, restart_marker_blocks=3, progressive=True)
    yield "own codes", saved(image, optimize=True)
    yield "quality 5", saved(image, quality=5)
    yield "grey", saved(image.convert("L"))
    yield "progressive grey", saved(image.convert("L"), progressive=True)
    yield "RGB", saved(image, keep_rgb=True)
    yield "CMYK", saved(image.convert("CMYK"))
    encoder, rgb = Encoder(), [82, 71, 66]
    one = (1, 1)
    for samplings, ids, adobe in [
        ([(1, 2), one, one], [1, 2, 3], None),
        ([(4, 1), (2, 1), one], [1, 2, 3], None),
        ([(1, 4), (1, 2), one], [1, 2, 3], None),
        ([(3, 1), one, one], [7, 8, 9], None),
        ([one, (2, 2), one], [1, 2, 3], None),
        ([(2, 2), (2, 1), (1, 2)], [1, 2, 3], 1),
        ([(2, 1)], [1], None),
        ([one, one, one], rgb, None),
        ([one, one, one], rgb, 1),
        ([one, one, one], [1, 2, 3], 0),
        ([one, one, one, one], [1, 2, 3, 4], None),
        ([(2, 2), one, one, (2, 2)], [1, 2, 3, 4], 2),
    ]:
        for is_joint, amplitude, restart in [(True, 30, 0), (False, 30, 2), (True, 800, 0)]:
            name = f"{samplings}, {ids=}, {adobe=}, {is_joint=}, {amplitude=}"
            yield name, encoder.file((19, 13), samplings, ids, adobe, is_joint, amplitude, restart)


def main():
    recorded = []
    for name, file in files():
        image = Image.open(io.BytesIO(file)).convert("RGB")
        digest = hashlib.sha256(image.tobytes()).hexdigest()
        file = base64.b64encode(file).decode()
        recorded.append({"name": name, "size": image.size, "rgb": digest, "file": file})
    lines = ",\n".join(json.dumps(entry) for entry in recorded)
    (HERE / "pictures.json").write_text(f"[\n{lines}\n]\n")


main()
