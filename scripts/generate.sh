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

mkdir -p "$out/node/agentsandbox"
protoc -I node/agentsandbox \
  --plugin=build/protoc/protoc-gen-go --plugin=build/protoc/protoc-gen-connect-go \
  --go_out="$out/node/agentsandbox" --go_opt=paths=source_relative \
  --connect-go_out="$out/node/agentsandbox" --connect-go_opt=paths=source_relative \
  node/agentsandbox/process/v1/process.proto

mkdir -p "$out/api/openapi"
described=$(mktemp)
trap 'rm -f "$described"' EXIT
protoc -I api --include_imports --include_source_info --descriptor_set_out="$described" api/caisson/v1/*.proto
go run ./api/openapi/gen < "$described" > "$out/api/openapi/openapi.json.new"
mv "$out/api/openapi/openapi.json.new" "$out/api/openapi/openapi.json" # gen may be built with the old one
go run ./api/openapi/gen -page < "$described" > "$out/docs/reference/routes.md"

mkdir -p "$out/sdk/python/caisson" "$out/sdk/typescript/src/generated"
go run ./api/openapi/gen -sdk python < "$described" > "$out/sdk/python/caisson/_options.py"
go run ./api/openapi/gen -values python > "$out/sdk/python/caisson/values.py"
go run ./api/openapi/gen -values typescript > "$out/sdk/typescript/src/generated/values.ts"
go run ./api/openapi/gen -sdk page < "$described" > "$out/docs/reference/options.md"
go run ./api/openapi/gen -sdk typescript < "$described" > "$out/sdk/typescript/src/generated/options.ts"
python3 sdk/python/tools/codes.py . > "$out/sdk/python/caisson/codes.py"
python3 sdk/python/tools/unasync.py sdk/python/caisson/_async "$out/sdk/python/caisson/_sync"

if [ -d api/sbxerr/gendoc ]; then
  go run ./api/sbxerr/gendoc > "$out/docs/reference/errors.md"
fi
if [ -d sdk/typescript/node_modules ]; then # its types need its packages; its own test compares them
  (cd sdk/typescript && node tools/generate.mjs "$out/sdk/typescript/src/generated")
fi
