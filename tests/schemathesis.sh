#!/usr/bin/env bash
# Requests made up from /openapi.json, right ones and wrong ones: none may be answered with 5xx (503
# aside), none may break its connection, and what is answered must be what the document says.
#
# Usage: tests/schemathesis.sh [CALLS]      2,000 calls unless told otherwise
# PLAYHOUSE   the program (default: target/release/playhouse)
# SCHEMATHESIS  the tester (default: schemathesis, as `pip install schemathesis` puts it on the path)
set -euo pipefail
cd "$(dirname "$0")/.."

calls="${1:-2000}"
playhouse="${PLAYHOUSE:-target/release/playhouse}"
schemathesis="$(realpath "$(command -v "${SCHEMATHESIS:-schemathesis}")")"
settings="$PWD/tests/schemathesis.toml"
folder="$(mktemp -d)"
log="$folder/log"
: >"$log"

# Small limits, so that a made-up request is soon done: reading requests is tested here. Without the
# operator's routes: a server that was paused by one would answer nothing more.
"$playhouse" serve --port 0 --max-model-len 256 --max-n-sequences 8 --max-completion-prompts 8 \
    --enable-admin-routes=false \
    --log-level "${LOG_LEVEL:-warn}" 2>"$log" &
server=$!
finish() {
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || true
    rm -rf "$folder"
}
trap finish EXIT

until url="$(sed -n 's/^.* serves .* on \(http:[^ ]*\)$/\1/p' "$log")" && [ -n "$url" ]; do
    kill -0 "$server" || { cat "$log"; exit 1; }
    sleep 0.2
done

# Where nothing can be given, nothing is made up.
operations="$(curl -sf "$url/openapi.json" | grep -oE '"(requestBody|parameters)":' | wc -l)"
examples=$(((calls + operations - 1) / operations))
echo "$calls calls: $examples of each of $operations operations that take something, at $url"

# It leaves files behind where it runs.
cd "$folder"
"$schemathesis" --config-file "$settings" run "$url/openapi.json" \
    --phases examples,coverage,fuzzing --max-examples "$examples" --continue-on-failure \
    --checks "${CHECKS:-not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance}" \
    --request-timeout 60 --suppress-health-check all --generation-database none --warnings off --no-color

curl -sf "$url/health"
echo "the server is well"
