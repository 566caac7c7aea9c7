#!/bin/sh
# Stands in for the go command in the virtual machine: some tests build a program
# for themselves, and image.sh has built it for them on the host.
#   go build [FLAG...] -o FILE PACKAGE
set -eu
while [ $# -gt 1 ]; do
  [ "$1" != -o ] || file=$2
  shift
done
exec cp "/tests/$(basename "$1")" "$file"
