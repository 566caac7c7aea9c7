#!/usr/bin/env bash
# Tests the changes since a commit: all tests of the packages with a change, and the smoke
# tests of every suite, against the real containerd and runc (root).
#   scripts/touch.sh [COMMIT]     by default where upstream was left, else HEAD
set -euo pipefail
cd "$(dirname "$0")/.."

# A branch without an upstream: its uncommitted changes.
base=${1:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)}
git rev-parse --quiet --verify "$base^{commit}" > /dev/null || { echo "test-touch: no commit $base" >&2; exit 1; }
suites='tests/(integration|escape|network|fault|programs|sdk|agents|page|vm|bench)'

changed() {
  { git diff --name-only "$base" --; git ls-files --others --exclude-standard; } |
    grep '\.go$' | sed -E 's|/testdata/.*|/x|' | xargs -r dirname | sort -u
}

mapfile -t units < <(changed | grep -vE "^$suites(/|$)" | while read -r dir; do [ ! -d "$dir" ] || echo "./$dir"; done)
[ ${#units[@]} = 0 ] || go test -short -ldflags=-s "${units[@]}"

# A suite that changed runs the changed files whole, and its smoke tests.
for suite in integration escape network fault sdk agents page; do
  dir=tests/$suite
  mapfile -t files < <({ git diff --name-only "$base" -- $dir; git ls-files --others --exclude-standard $dir; } | grep -E "^$dir/[^/]*_test\.go$" | while read -r f; do [ ! -e "$f" ] || echo "$f"; done)
  tests=$({
    awk -v scope=smoke -f tests/select.awk $dir/*_test.go
    [ ${#files[@]} = 0 ] || sed -nE 's/^func (Test[A-Z][A-Za-z0-9]*)\(t .*/\1/p' "${files[@]}"
  } | grep -v '^TestChaos$' | sort -u | paste -sd '|')
  go test -count=1 -timeout 10m -run "^($tests)\$" ./$dir
done
