#!/usr/bin/env bash
# Everything that only a GPU can tell, in one run: what is right first, then how fast.
#
#   benches/gpu.sh build [FOLDER]            binaries into FOLDER (default target/gpu); no toolkit is needed
#   benches/gpu.sh run [FOLDER] [PART…]      kernels, answers, chaos, ceilings, decode, prefill, torch; all of them
#                                            unless told otherwise
#
# The two may be done on two machines: FOLDER and a checkout is all that `run` needs, and the driver. Results go to
# FOLDER/results, one file a part. A part that fails is told, the others go on, and the exit code is 1.
#
#   DEVICE (cuda)                what --device says; wgpu measures through Vulkan or Metal
#   FEATURES (cuda,wgpu)         what `build` builds playhouse with
#   SHAPES (qwen3-0.6b llama-3.1-8b)   folders of benches/shapes; their weights are made up on the machine
#   KILLS (500)  CLIENTS (32)  OUTPUT_TOKENS (64)   of the part `chaos`
#   BATCHES (1 8 32 128 256)  PREFILLS (512 2048 8192)  CONTEXT (1024)
#   PYTHON (python3)             with torch and transformers, for the part `torch`
set -uo pipefail
cd "$(dirname "$0")/.."

device=${DEVICE:-cuda}
port=${PORT:-18765}

say() { printf '\n== %s  %s\n' "$(date +%T)" "$*"; }

# The test binary of the kernels with some features, under a name of its own.
kernel_tests() {
  local features=$1 name=$2 binary
  say "kernels with $features"
  binary=$(cargo test --release -p playhouse-kernels --lib --features "$features" --no-run --message-format json \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
  [ -n "$binary" ] && cp "$binary" "$folder/$name" && strip "$folder/$name"
}

build() {
  mkdir -p "$folder"
  kernel_tests cuda kernels-cuda || return 1
  kernel_tests cuda-nvrtc kernels-nvrtc || return 1
  kernel_tests vulkan kernels-vulkan || return 1
  say playhouse
  cargo build --release --features "${FEATURES:-cuda,wgpu},chaos" --bin playhouse || return 1
  cp "${CARGO_TARGET_DIR:-target}/release/playhouse" "$folder/playhouse" && strip "$folder/playhouse"
  ls -lh "$folder"
}

# Every kernel beside its reference: CUDA by both compilers, and Vulkan.
kernels() {
  local binary failed=0
  for binary in "$folder"/kernels-*; do
    echo "-- ${binary##*/}"
    # One at a time: what another thread allocates would end the recording of a CUDA graph.
    PLAYHOUSE_TEST_REQUIRE_GPU=1 "$binary" cube --test-threads 1 || failed=1
  done
  return $failed
}

# Starts a server of the demo model, and ends that one.
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

# The engine says what PyTorch says, whatever shares the batch.
answers() { served; }

# Actors and the worker die under streams; none is lost, none differs.
chaos() {
  "$folder/playhouse" bench chaos --device "$device" --deterministic --kills "${KILLS:-500}" --interval-ms 30 \
    --clients "${CLIENTS:-32}" --output-tokens "${OUTPUT_TOKENS:-64}"
}

# Operations beside what the device can read and multiply.
ceilings() {
  local shape
  for shape in $shapes; do
    "$folder/playhouse" bench kernels --device "$device" -m "benches/shapes/$shape" || return 1
  done
}

# One batch: `latency BATCH INPUT OUTPUT SHAPE`.
latency() {
  "$folder/playhouse" bench latency --device "$device" -m "benches/shapes/$4" --load-format dummy \
    --tokenizer examples/demo-model --dtype bfloat16 --no-enable-prefix-caching --max-num-batched-tokens 16384 \
    --max-model-len 16384 --max-num-seqs 256 \
    --batch-size "$1" --input-len "$2" --output-len "$3" --num-iters-warmup 1 --num-iters 3
}

# The time of 1 and of 65 tokens: the difference is that of 64 decode steps.
decode() {
  local shape batch
  for shape in $shapes; do
    for batch in ${BATCHES:-1 8 32 128 256}; do
      echo "-- $shape, batch $batch, ${CONTEXT:-1024} of context"
      latency "$batch" "${CONTEXT:-1024}" 1 "$shape" || return 1
      latency "$batch" "${CONTEXT:-1024}" 65 "$shape" || return 1
    done
  done
}

prefill() {
  local shape tokens
  for shape in $shapes; do
    for tokens in ${PREFILLS:-512 2048 8192}; do
      echo "-- $shape, prefill of $tokens"
      latency 1 "$tokens" 1 "$shape" || return 1
    done
  done
}

# The same shapes in PyTorch.
torch() {
  local shape
  for shape in $shapes; do
    "${PYTHON:-python3}" benches/gpu_torch.py "benches/shapes/$shape" || return 1
  done
}

command=${1:-}
folder=${2:-target/gpu}
shapes=${SHAPES:-qwen3-0.6b llama-3.1-8b}
case "$command" in
  build) build ;;
  run)
    shift; [ $# -gt 0 ] && shift
    [ $# -gt 0 ] || set -- kernels answers chaos ceilings decode prefill torch
    results="$folder/results"
    mkdir -p "$results"
    command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$results/device.txt"
    failed=()
    for part in "$@"; do
      say "$part"
      case "$part" in
        kernels | answers | chaos | ceilings | decode | prefill | torch) ;;
        *) echo "there is no part '$part'"; exit 2 ;;
      esac
      "$part" 2>&1 | tee "$results/$part.txt" || failed+=("$part")
    done
    say "done${failed:+, failed: ${failed[*]}}"
    [ ${#failed[@]} = 0 ]
    ;;
  *) sed -n '2,18s/^# \{0,1\}//p' benches/gpu.sh; exit 2 ;;
esac
