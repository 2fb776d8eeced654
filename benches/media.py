#!/usr/bin/env python3
"""Compares the gaps between tokens of text streams while images are encoded, and without images.

    cargo build --release
    benches/media.py                                  8 streams, two images a second
    benches/media.py --text-layers 28 --rate 0.2      the text model's 28 layers, an image each 5 s

The model is LLaVA's, with SigLIP's tower of the base shape (224 pixels, 196 embeddings an image)
and the first layers of Qwen3 0.6B. Weights are made up. Three kinds of phases alternate: the streams
alone, with prompts of as many tokens as an image has, and with images. So the difference between
the last two is that of encoding.
"""
import argparse, base64, json, os, random, socket, statistics, struct, subprocess, sys, tempfile, threading, time
import urllib.request, zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIDE, EMBEDDINGS = 224, 196
KINDS = ["alone", "prompts", "images"]
TEMPLATE = ("{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
            "{% for part in message.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}"
            "{% endif %}{% endfor %}{% endif %}{% endfor %}")


def write(path, value):
    with open(path, "w") as file:
        json.dump(value, file)


def make(folder, num_layers):
    """Writes all files of the model but its weights."""
    with open(f"{ROOT}/benches/shapes/qwen3-0.6b/config.json") as file:
        text = {**json.load(file), "num_hidden_layers": num_layers}
    with open(f"{ROOT}/examples/demo-model/tokenizer.json") as file:
        tokenizer = json.load(file)
    token = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
    tokenizer["added_tokens"].append({"id": token, "content": "<image>", "single_word": False, "lstrip": False,
                                      "rstrip": False, "normalized": False, "special": True})
    write(f"{folder}/tokenizer.json", tokenizer)
    write(f"{folder}/tokenizer_config.json", {"chat_template": TEMPLATE})
    write(f"{folder}/config.json", {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text,
        "image_token_index": token, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full", "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 768, "intermediate_size": 3072,
            "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": SIDE, "patch_size": 16,
            "num_channels": 3, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
            "vision_use_head": False}})
    half = [0.5, 0.5, 0.5]
    write(f"{folder}/preprocessor_config.json", {
        "image_processor_type": "SiglipImageProcessor", "image_mean": half, "image_std": half, "resample": 3,
        "size": {"height": SIDE, "width": SIDE}})


def png(draw):
    """Returns an image of random colours."""
    chunk = lambda kind, data: (struct.pack(">I", len(data)) + kind + data
                                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + draw.randbytes(3 * SIDE) for _ in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1))
    data += chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


class Phase:
    """Streams of text for some seconds, with other prompts or images beside them."""

    def __init__(self, url, args, seed):
        self.url, self.args, self.draw = url, args, random.Random(seed)
        self.end = time.monotonic() + args.seconds
        self.gaps, self.images, self.latencies = [], 0, []

    def post(self, body):
        data = json.dumps({"model": "base", "temperature": 0, "ignore_eos": True, **body}).encode()
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, {"content-type": "application/json"})
        return urllib.request.urlopen(request, timeout=600)

    def stream(self, number):
        while time.monotonic() < self.end:
            text = f"{number} {self.draw.random()} " * 4
            answer = self.post({"messages": [{"role": "user", "content": text}], "max_tokens": 200, "stream": True})
            last = None
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                if last is not None and now < self.end:
                    self.gaps.append(now - last)
                last = now

    def content(self, kind):
        if kind == "images":
            return [{"type": "image_url", "image_url": {"url": png(self.draw)}}]
        # The demo model's tokenizer has a token for each digit.
        return "".join(str(self.draw.randrange(10)) for _ in range(EMBEDDINGS))

    def show(self, kind):
        while time.monotonic() < self.end:
            begun = time.monotonic()
            message = {"role": "user", "content": self.content(kind)}
            self.post({"messages": [message], "max_tokens": 1}).read()
            self.latencies.append(time.monotonic() - begun)
            self.images += 1
            time.sleep(max(0, begun + 1 / self.args.rate - time.monotonic()))

    def run(self, kind):
        threads = [threading.Thread(target=self.stream, args=(n,)) for n in range(self.args.streams)]
        threads += [threading.Thread(target=self.show, args=(kind,))] if kind != "alone" else []
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.gaps.sort()
        at = lambda share: 1e3 * self.gaps[int(share * (len(self.gaps) - 1))]
        return {"p50": at(0.5), "p99": at(0.99), "tokens/s": len(self.gaps) / self.args.seconds,
                "prompts/s": self.images / self.args.seconds,
                "prompt, s": statistics.median(self.latencies) if self.latencies else 0.0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "target/release/playhouse"))
    parser.add_argument("--text-layers", type=int, default=2)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rate", type=float, default=2.0, help="images or prompts a second, at most")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        make(folder, args.text_layers)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        server = subprocess.Popen([
            args.program, "serve", "-m", folder, "--load-format", "dummy", "--port", str(port),
            "--max-model-len", "1024", "--served-model-name", "base", "--log-level", "warn"])
        url, rows = f"http://127.0.0.1:{port}", {kind: [] for kind in KINDS}
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/readyz").close()
                    break
                except OSError:
                    if server.poll() is not None:
                        sys.exit("the server ended")
                    time.sleep(0.2)
            Phase(url, argparse.Namespace(**{**vars(args), "seconds": 3}), -1).run("images")
            for repetition in range(args.repetitions):
                for number, kind in enumerate(KINDS):
                    rows[kind].append(Phase(url, args, 3 * repetition + number).run(kind))
        finally:
            server.terminate()
            server.wait()
    print("| | alone | beside prompts | beside images | images to prompts |\n|---|---|---|---|---|")
    for name in rows["alone"][0]:
        alone, prompts, images = (statistics.median(row[name] for row in rows[kind]) for kind in KINDS)
        unit = ", ms between tokens" if name[0] == "p" and name[1:].isdigit() else ""
        print(f"| {name}{unit} | {alone:.2f} | {prompts:.2f} | {images:.2f} | {images / prompts:.2f} |")


if __name__ == "__main__":
    main()
