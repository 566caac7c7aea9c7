#!/usr/bin/env bash
# All that can be said of the tree without running it. Goes through every check
# and fails at the end, so that one run names everything.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()
check() { # NAME COMMAND...
  local name=$1
  shift
  echo "check $name"
  "$@" || failed+=("$name")
}

formatted() {
  local files
  files=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
  [ -z "$files" ] || { echo "gofmt -w these:" "$files" >&2; return 1; }
}

# Every file that generate.sh makes must be in the tree, byte for byte.
generated() {
  local tmp status=0 file
  tmp=$(mktemp -d) || return 1
  if scripts/generate.sh "$tmp"; then
    while read -r file; do
      diff -u "$file" "$tmp/$file" || status=1
    done < <(cd "$tmp" && find . -type f -printf '%P\n')
    [ $status = 0 ] || echo "stale: make generate" >&2
  else
    status=1
  fi
  rm -rf "$tmp"
  return $status
}

# What is built belongs in bin/ and build/, never in the tree.
no_programs() {
  local files
  files=$(git grep --cached -la $'^\x7fELF')
  [ -z "$files" ] || { echo "programs in the tree:" "$files" >&2; return 1; }
}

python_sdk() { # its types, and its tests without a daemon
  mypy --strict --enable-incomplete-feature=Unpack --cache-dir build/mypy sdk/python/caisson &&
    (cd sdk/python && PYTHONDONTWRITEBYTECODE=1 python3 -W error -m unittest discover --quiet -s tests -t .)
}

# bash -n reads one file: the others would be its arguments.
shell_scripts() {
  local file status=0
  while IFS= read -r -d '' file; do
    bash -n "$file" || status=1
  done < <(git ls-files -z .ci/run '*.sh')
  return $status
}

promql() { (cd tools/promql && GOWORK=off go vet ./... && GOWORK=off go test ./...); }

tidy() { (cd "$1" && GOWORK=off go mod tidy -diff); }

check gofmt formatted
check vet go vet ./... ./api/...
check staticcheck go tool staticcheck ./... ./api/...
check layering go test -count=1 ./tests/layering/...
check "go.mod" tidy .
check "api/go.mod" tidy api
check "tools/containerd17/go.mod" tidy tools/containerd17
check "tools/gvisor/go.mod" tidy tools/gvisor
check "tools/promql/go.mod" tidy tools/promql
check "dashboard and alerts" promql
check "tools/registry/go.mod" tidy tools/registry
check "tools/browser/go.mod" tidy tools/browser
check "tools/gotestsum/go.mod" tidy tools/gotestsum
check "tools/kubernetes/go.mod" tidy tools/kubernetes
check "node/go.mod" tidy node
check "tools/nfpm/go.mod" tidy tools/nfpm
check "tools/sbom/go.mod" tidy tools/sbom
check "manual pages" go vet -tags man ./cmd/caisson/caisson-whole ./cmd/caissond
check generated generated
check "Python SDK" python_sdk
check "no programs" no_programs
check "shell scripts" shell_scripts

if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
