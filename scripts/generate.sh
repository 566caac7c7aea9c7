#!/usr/bin/env bash
# Writes every generated file of the project below OUT: the tree itself (make
# generate) or an empty directory to compare with (make check).
#   scripts/generate.sh OUT
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath "$1")

mkdir -p "$out/api" "$out/docs/reference"
protoc -I api \
  --plugin=build/protoc/protoc-gen-go --plugin=build/protoc/protoc-gen-connect-go \
  --go_out="$out/api" --go_opt=paths=source_relative \
  --connect-go_out="$out/api" --connect-go_opt=paths=source_relative \
  api/caisson/v1/*.proto

mkdir -p "$out/sdk/python/caisson"
python3 sdk/python/tools/codes.py . > "$out/sdk/python/caisson/codes.py"
python3 sdk/python/tools/unasync.py sdk/python/caisson/_async "$out/sdk/python/caisson/_sync"

if [ -d sbxerr/gendoc ]; then
  go run ./sbxerr/gendoc > "$out/docs/reference/errors.md"
fi
