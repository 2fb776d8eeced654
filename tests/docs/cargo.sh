#!/usr/bin/env bash
# Replaces cargo in the tests of the documents. `run` runs the programs that the tests have built.
# The arguments of other commands are compared with the workspace, and nothing is built: cargo
# builds it already, for these tests.
set -euo pipefail

fail() { echo "cargo: $*" >&2; exit 1; }

command="$1"
shift
example=
manifest=
while [ $# -gt 0 ]; do
    case "$1" in
        --) shift; break ;;
        --example) example="$2"; shift ;;
        -p | --package) [ -f "$ROOT/${2#playhouse-}/Cargo.toml" ] || fail "no package $2"; shift ;;
        --test) [ -e "$ROOT/tests/$2" ] || [ -e "$ROOT/tests/$2.rs" ] || [ -e "$ROOT/actors/tests/$2.rs" ] || [ -e "$ROOT/actors/tests/$2" ] || fail "no test $2"; shift ;;
        --bench) [ -e "$ROOT/benches/$2.rs" ] || fail "no bench $2"; shift ;;
        --bin) shift ;;
        --features)
            case "$2" in demo-model) ;; *) fail "no feature $2" ;; esac
            shift ;;
        --path) [ -e "$ROOT/$2" ] || fail "nothing at $2"; shift ;;
        --manifest-path) [ -e "$ROOT/$2" ] || fail "nothing at $2"; manifest="$2"; shift ;;
        --release | --workspace | --all | --all-targets | --lib | --no-default-features | --no-deps | --locked) ;;
        -*) fail "unknown flag $1" ;;
        *) ;;
    esac
    shift
done
case "$command" in
    run)
        # A program outside the workspace, which has a test of its own.
        [ -n "$manifest" ] && exit 0
        [ -n "$example" ] && exec "$TARGET/examples/$example" "$@"
        exec playhouse "$@" ;;
    build | check | test | bench | clippy | install | doc | fmt) ;;
    *) fail "unknown command $command" ;;
esac
