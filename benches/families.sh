#!/usr/bin/env bash
# Measures two shapes whose speed depends on what a step reads: a mixture of experts, and Mamba 2.
#
# - `benches/families.sh prepare [DIR]` makes the mixture for both engines (17 GB), and builds
#   llama.cpp if it is missing: see peers.sh and its variables.
# - `benches/families.sh run [DIR]` measures, in less than 15 minutes on two cores:
#   1. Qwen3-MoE of 4.3 billion parameters, 8 times those that a token needs, with 1 and 8 clients
#      beside llama.cpp's server. The share of the memory's bandwidth that one client reaches
#      follows.
#   2. Mamba 2 with 12 of its 48 layers: the time of a token after prompts of 1024, 8192 and 32768
#      tokens. Its weights are made up.
#
# DIR is by default $PLAYHOUSE_PEERS or ~/.cache. Variables: PLAYHOUSE (target/release/playhouse),
# CONTEXTS (1024 8192 32768), LAYERS (12) and PORT (18766).
set -euo pipefail
cd "$(dirname "$0")/.."
command=${1:-run}
dir=${2:-${PLAYHOUSE_PEERS:-$HOME/.cache}}
playhouse=${PLAYHOUSE:-${CARGO_TARGET_DIR:-target}/release/playhouse}
port=${PORT:-18766}
say() { printf '\n== %s  %s\n' "$(date +%T)" "$*"; }

# Bytes of weights that a decoded token of the mixture reads, in bf16.
active_bytes() {
  python3 - benches/shapes/qwen3-moe/config.json << 'X'
import json, sys
c = json.load(open(sys.argv[1]))
hidden, heads, kv, dim = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
attention = hidden * dim * (2 * heads + 2 * kv)
experts = 3 * hidden * c["moe_intermediate_size"] * c["num_experts_per_tok"] + hidden * c["num_experts"]
print(2 * (c["num_hidden_layers"] * (attention + experts) + hidden * c["vocab_size"]))
X
}

mixture() {
  say "a mixture of experts beside llama.cpp"
  benches/compare.py --dir "$dir" --playhouse "$playhouse" --model "$dir/models/qwen3-moe" --engines playhouse,llama.cpp \
    --client playhouse --clients 1,8 --servers-only --repetitions 2 --minutes 8 --results families-mixture.json
  say "the share of the bandwidth that one client reaches"
  "$playhouse" bench kernels --op linear --num-tokens 1 --output json > families-limits.json
  python3 - families-mixture.json families-limits.json "$(active_bytes)" << 'X'
import json, statistics, sys
rows, limits, size = json.load(open(sys.argv[1]))["results"], json.load(open(sys.argv[2])), int(sys.argv[3])
for engine, times in rows["1 client, mean TPOT, ms"].items():
    reached = size / statistics.median(times) * 1e3 / 1e9
    limit = limits["read_max_gb_per_s"]
    print(f"{engine}: {reached:.1f} GB/s of {limit} GB/s, {100 * reached / limit:.0f} %")
X
}

mamba() {
  say "Mamba 2: a token after prompts of ${CONTEXTS:-1024 8192 32768} tokens"
  local shape server
  shape=$(mktemp -d)
  sed "s/\"num_hidden_layers\": [0-9]*/\"num_hidden_layers\": ${LAYERS:-12}/" benches/shapes/mamba2/config.json > "$shape/config.json"
  "$playhouse" serve "$shape" --load-format dummy --tokenizer examples/demo-model --served-model-name m --port "$port" \
    --max-model-len 40000 --kv-cache-memory-bytes 2GiB --log-level warn &
  server=$!
  trap 'kill $server 2> /dev/null || true; rm -r "$shape"' RETURN
  until curl -sf "http://127.0.0.1:$port/health" > /dev/null; do kill -0 $server; sleep 1; done
  for context in 64 ${CONTEXTS:-1024 8192 32768}; do
    "$playhouse" bench serve --base-url "http://127.0.0.1:$port" --model m --tokenizer examples/demo-model --dataset-name random \
      --random-input-len "$context" --random-output-len 65 --num-prompts 1 --max-concurrency 1 --ignore-eos --temperature 0 \
      --save-result --result-dir "$shape" --result-filename "$context.json" > /dev/null
    python3 -c '
import json, sys
row = json.load(open(sys.argv[1]))
token, first = row["mean_tpot_ms"], row["mean_ttft_ms"] / 1e3
print(f"{sys.argv[2]:>6} tokens: {token:.2f} ms a token, {first:.1f} s to the first")
' "$shape/$context.json" "$context"
  done
}

case $command in
  prepare) MODELS=qwen3-moe benches/peers.sh "$dir" ;;
  run) mixture; mamba ;;
  mixture | mamba) $command ;;
  *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
