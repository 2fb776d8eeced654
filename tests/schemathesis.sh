#!/usr/bin/env bash
# Sends requests made up from /openapi.json, valid and invalid ones. No request may get a status of
# 500 or more, except 503, or lose its connection. Each answer must have the form that the document
# describes.
#
# Usage: tests/schemathesis.sh [CALLS]
#
# - CALLS: the number of requests (default: 2,000).
# - PLAYHOUSE: the program (default: target/release/playhouse).
# - SCHEMATHESIS: the tester (default: schemathesis, which `pip install schemathesis` installs).
set -euo pipefail
cd "$(dirname "$0")/.."

calls="${1:-2000}"
playhouse="${PLAYHOUSE:-target/release/playhouse}"
schemathesis="$(realpath "$(command -v "${SCHEMATHESIS:-schemathesis}")")"
settings="$PWD/tests/schemathesis.toml"
folder="$(mktemp -d)"
log="$folder/log"
: >"$log"

# The limits are small so that requests end soon, because this test is about reading requests. The
# operator's routes are off, because one of them could pause the server for all further requests.
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

# Requests are made up only for operations with parameters or a body.
operations="$(curl -sf "$url/openapi.json" | grep -oE '"(requestBody|parameters)":' | wc -l)"
examples=$(((calls + operations - 1) / operations))
echo "$calls calls: $examples of each of $operations operations with input, at $url"

# Schemathesis leaves files in its working folder.
cd "$folder"
"$schemathesis" --config-file "$settings" run "$url/openapi.json" \
    --phases examples,coverage,fuzzing --max-examples "$examples" --continue-on-failure \
    --checks "${CHECKS:-not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance}" \
    --request-timeout 60 --suppress-health-check all --generation-database none --warnings off --no-color

curl -sf "$url/health"
echo "the server is healthy"
