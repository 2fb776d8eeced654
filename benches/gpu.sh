#!/usr/bin/env bash
# Measures everything that needs a GPU, in one run: first correctness, then speed.
#
# - `benches/gpu.sh build [FOLDER]` puts binaries into FOLDER (default: target/measure-gpu), and
#   beside them libdevice.10.bc of NVIDIA's toolkit, which LLVM needs where the binaries run. The
#   toolkit is CUDA_PATH, or a Python's package: `pip install nvidia-cuda-nvcc`.
# - `benches/gpu.sh run [FOLDER] [PART…]` runs the parts (default: all), in this order: kernels,
#   answers, cases, decode, prefill, experts, ceilings, chaos and torch.
#
# The commands may run on two machines. `run` needs FOLDER, a checkout and the driver. It writes one
# file a part to FOLDER/results. If a part fails, this is reported, the others go on, and the exit
# code is 1. Variables and their defaults:
#
# - DEVICE (cuda): the value of --device. With wgpu, it measures through Vulkan or Metal.
# - FEATURES (cuda,wgpu): the features of playhouse for `build`.
# - KERNELS (cuda nvrtc vulkan): the builds of kernels that are made and tested.
# - SHAPES (qwen3-0.6b llama-3.1-8b): folders of benches/shapes. The machine makes up the weights.
# - KILLS (500), CLIENTS (32), OUTPUT_TOKENS (64): the settings of the part `chaos`.
# - BATCHES (1,8,32,128,256), PREFILLS (512,2048,8192), CONTEXT (1024): the sizes to measure.
# - JOBS (the number of cores): processes that test kernels.
# - PYTHON (python3): a Python with torch and transformers, for the part `torch`.
# - PART_SECONDS (600): a part that takes longer is ended, and has failed.
# - ALL_SECONDS (no limit): the time for all parts. Parts that it has no time for are named.
#
# In 15 minutes of a borrowed machine, of which the start takes some:
#
#     ALL_SECONDS=720 KERNELS=cuda BATCHES=1,32,256 PREFILLS=2048 \
#       benches/gpu.sh run FOLDER kernels answers decode prefill cases
set -uo pipefail
cd "$(dirname "$0")/.."

device=${DEVICE:-cuda}
port=${PORT:-18765}
jobs=${JOBS:-$(nproc)}
kernels=${KERNELS:-cuda nvrtc vulkan}
parts=(kernels answers cases decode prefill experts ceilings chaos torch)

say() { printf '\n== %s  %s\n' "$(date +%T)" "$*"; }

# Builds the kernels' test binary with some features: `kernel_tests FEATURES NAME`.
kernel_tests() {
  local features=$1 name=$2 binary
  say "kernels with $features"
  binary=$(cargo test --profile gpu -p playhouse-kernels --lib --features "$features" --no-run --message-format json \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
  [ -n "$binary" ] && cp "$binary" "$folder/$name" && strip "$folder/$name"
}

# Copies NVIDIA's library of mathematical functions, 0.5 MB.
libdevice() {
  local root found file=nvvm/libdevice/libdevice.10.bc
  found=$("${PYTHON:-python3}" -c 'import nvidia; print(*nvidia.__path__)' 2> /dev/null)
  for root in ${CUDA_PATH:-/usr/local/cuda} ${found:+$found/cu13 $found/cuda_nvcc}; do
    [ -f "$root/$file" ] || continue
    mkdir -p "$folder/cuda/${file%/*}"
    cp "$root/$file" "$folder/cuda/$file" && return
  done
  echo "libdevice.10.bc is missing: set CUDA_PATH, or pip install nvidia-cuda-nvcc"
  return 1
}

build() {
  mkdir -p "$folder"
  libdevice || return 1
  local name features
  for name in $kernels; do
    features=$name
    [ "$name" = nvrtc ] && features=cuda-nvrtc
    kernel_tests "$features" "kernels-$name" || return 1
  done
  say playhouse
  cargo build --profile gpu --features "${FEATURES:-cuda,wgpu}" --bin playhouse || return 1
  cp "${CARGO_TARGET_DIR:-target}/gpu/playhouse" "$folder/playhouse" && strip "$folder/playhouse"
  ls -lh "$folder"
}

# Compares every kernel with its reference: CUDA by both compilers, and Vulkan.
kernels() {
  local name failed=0
  for name in $kernels; do
    echo "-- kernels-$name"
    in_parts "$folder/kernels-$name" || failed=1
  done
  return $failed
}

# Runs a binary's tests of GPU kernels in JOBS processes, since most of the time goes into compiling
# kernels. In each, tests run one at a time: an allocation of another thread would end the recording
# of a CUDA graph.
in_parts() {
  local part log="$results/${1##*/}" failed=0
  [ -x "$1" ] || { echo "$1 is missing: benches/gpu.sh build"; return 1; }
  rm -f "$log".*
  "$1" cube --list --format terse | sed -n 's/: test$//p' | split --elide-empty-files --number "r/$jobs" - "$log.names."
  for part in "$log".names.*; do
    # shellcheck disable=SC2046
    PLAYHOUSE_TEST_REQUIRE_GPU=1 "$1" --exact $(cat "$part") --test-threads 1 > "$log.log.${part##*.}" 2>&1 &
  done
  wait
  grep -hE '^test .* FAILED$|panicked at|^  (left|right):' "$log".log.*
  grep -h '^test result' "$log".log.* | sort | uniq -c
  [ "$(grep -lE '^test result: ok' "$log".log.* | wc -l)" = "$(ls "$log".log.* | wc -l)" ] || failed=1
  return $failed
}

# Starts a server of the demo model, and ends it.
served() {
  local log="$results/server.log" code=0
  "$folder/playhouse" serve --device "$device" --dtype float32 --port "$port" --max-model-len 2048 "$@" > "$log" 2>&1 &
  local server=$!
  for _ in $(seq 600); do
    curl -sf "http://127.0.0.1:$port/health" > /dev/null && break
    kill -0 $server 2> /dev/null || { cat "$log"; return 1; }
    sleep 0.1
  done
  python3 benches/answers.py "http://127.0.0.1:$port" --times 4 || code=1
  kill $server
  wait $server
  return $code
}

# Compares the engine's answers with PyTorch's, in any batch.
answers() { served; }

# Kills actors and the worker under streams. No stream may be lost or differ.
chaos() {
  "$folder/playhouse" bench chaos --device "$device" --deterministic --kills "${KILLS:-500}" --interval-ms 30 \
    --clients "${CLIENTS:-32}" --output-tokens "${OUTPUT_TOKENS:-64}"
}

# Measures operations, and the device's limits of reading and multiplying.
ceilings() {
  local shape
  for shape in $shapes; do
    "$folder/playhouse" bench kernels --device "$device" -m "benches/shapes/$shape" || return 1
  done
}

# Measures a mixture's experts in each format, for few tokens of an expert and for many. `kernels`
# compares them with their reference first.
experts() {
  local format formats=("--dtype bfloat16" "--quantization int8" "--quantization int4")
  for format in "${formats[@]}"; do
    echo "-- $format"
    # shellcheck disable=SC2086
    "$folder/playhouse" bench kernels --device "$device" --op experts $format --num-tokens 1,8,32,128,512,2048 || return 1
  done
}

# Measures batches with random weights: `latency SHAPE FLAG…`.
latency() {
  local shape=$1; shift
  "$folder/playhouse" bench latency --device "$device" -m "benches/shapes/$shape" --load-format dummy \
    --tokenizer examples/demo-model --dtype bfloat16 --max-num-batched-tokens 16384 \
    --max-model-len 16384 --max-num-seqs 256 --num-iters-warmup 1 --num-iters 3 "$@"
}

# Measures 1 and 65 tokens after a cached prompt: the difference is the time of 64 decode steps.
decode() {
  local shape
  for shape in $shapes; do
    echo "-- $shape, ${CONTEXT:-1024} of context"
    latency "$shape" --enable-prefix-caching --batch-size "${BATCHES:-1,8,32,128,256}" \
      --input-len "${CONTEXT:-1024}" --output-len 1,65 || return 1
  done
}

prefill() {
  local shape
  for shape in $shapes; do
    echo "-- $shape"
    latency "$shape" --no-enable-prefix-caching --batch-size 1 --input-len "${PREFILLS:-512,2048,8192}" \
      --output-len 1 || return 1
  done
}

# Runs the engine with every kernel, in each case of tests/cuda. A case fails if the device reports
# an error or a result is not finite.
cases() {
  python3 benches/gpu_cases.py "$folder/playhouse" --device "$device"
}

# Measures the same shapes in PyTorch.
torch() {
  local shape
  for shape in $shapes; do
    "${PYTHON:-python3}" benches/gpu_torch.py "benches/shapes/$shape" || return 1
  done
}

command=${1:-}
folder=${2:-target/measure-gpu}
results="$folder/results"
shapes=${SHAPES:-qwen3-0.6b llama-3.1-8b}
[ -n "${CUDA_PATH:-}" ] || [ -d /usr/local/cuda/nvvm ] || [ "$command" = build ] || export CUDA_PATH="$folder/cuda"
case "$command" in
  build) build ;;
  # A part in a process of its own, which can be ended with all that it started.
  part) "$3" ;;
  run)
    shift; [ $# -gt 0 ] && shift
    [ $# -gt 0 ] || set -- "${parts[@]}"
    for part in "$@"; do
      [[ " ${parts[*]} " = *" $part "* ]] || { echo "there is no part '$part': ${parts[*]}"; exit 2; }
    done
    mkdir -p "$results"
    command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$results/device.txt"
    failed=() left_out=()
    for part in "$@"; do
      limit=${PART_SECONDS:-600}
      rest=$((${ALL_SECONDS:-1000000} - SECONDS))
      [ "$rest" -ge "$limit" ] || limit=$rest
      [ "$limit" -gt 0 ] || { left_out+=("$part"); continue; }
      say "$part, at most $limit s"
      begun=$SECONDS
      timeout "$limit" bash benches/gpu.sh part "$folder" "$part" 2>&1 | tee "$results/$part.txt" || failed+=("$part")
      say "$part took $((SECONDS - begun)) s"
    done
    say "done${failed:+, failed: ${failed[*]}}${left_out:+, no time for: ${left_out[*]}}"
    [ ${#failed[@]} = 0 ] && [ ${#left_out[@]} = 0 ]
    ;;
  *) sed -n '2,30s/^# \{0,1\}//p' benches/gpu.sh; exit 2 ;;
esac
