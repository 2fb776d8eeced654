#!/usr/bin/env bash
# curl that fails if the status is 400 or more.
PATH="${PATH#*:}"
exec curl --fail-with-body --silent --show-error "$@"
