#!/usr/bin/env bash
# Runs go test. A failed test runs once more, alone. If it passes then, it is printed
# as flaky: mend it the same day. More than three failures are no accident, and a
# package that fails without a failed test (one that leaves something behind) stays failed.
#   scripts/gotest.sh PACKAGE... [-- FLAG...]
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  packages+=("$1")
  shift
done
[ $# = 0 ] || shift

report=$(mktemp)
trap 'rm -f "$report"' EXIT
status=0
build/gotestsum/gotestsum --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=3 \
  --rerun-fails-run-root-test --rerun-fails-report="$report" --packages="${packages[*]}" -- "$@" || status=$?
[ $status != 0 ] || sed -nE 's|^([^ ]+)\.(Test[^./: ]+): .*|FLAKY	\1	\2 failed, and passed alone: mend it|p' "$report" | sort -u
exit $status
