#!/usr/bin/env bash
# Prints |NAME for each test of the two largest suites that this run leaves to others, for
# go test -skip. With CAISSON_TEST_TURN=NUMBER/TURNS each of TURNS runs takes another part of the
# tests. Those marked //caisson:smoke or //caisson:kernel always run, and all do without the variable.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -n "${CAISSON_TEST_TURN-}" ] || exit 0
for suite in tests/integration tests/network; do
  always=$(for scope in smoke kernel; do awk -v scope=$scope -f tests/select.awk $suite/*_test.go; done)
  awk '/^func Test[A-Z]/ && !/^func TestMain\(/ { split($2, name, "("); print name[1] }' $suite/*_test.go |
    grep -vxF "$always" | awk -v turn="$CAISSON_TEST_TURN" 'BEGIN { split(turn, of, "/") } NR % of[2] != of[1] % of[2] { printf "|%s", $0 }'
done
