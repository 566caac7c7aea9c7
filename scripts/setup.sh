#!/usr/bin/env bash
# Brings the Debian packages that building and testing need. As root with apt-get
# it installs what is missing; otherwise it prints it. Nothing missing: nothing done.
#   scripts/setup.sh [PACKAGE...]    further packages that the caller needs
set -euo pipefail

# libprotobuf-dev: the well-known types that the API imports, which protobuf-compiler
# only recommends. dpkg-dev, bzip2 and xz-utils build the busybox of the image base;
# busybox-static is for the demo and the virtual machines.
# python3-build, -pip, -setuptools and -wheel pack and install the Python SDK; mypy checks it.
# iproute2: tests join namespaces by links, which busybox's ip does not make.
packages=(gcc libc6-dev binutils pkg-config libseccomp-dev protobuf-compiler libprotobuf-dev iptables iproute2
  dpkg-dev bzip2 xz-utils busybox-static
  python3 python3-build python3-pip python3-setuptools python3-wheel mypy "$@")

# Node.js builds and tests the TypeScript SDK. One that is not Debian's brings its own npm.
command -v node >/dev/null && command -v npm >/dev/null || packages+=(nodejs npm)

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>&1)" = installed ]; }

if ! command -v go >/dev/null; then
  echo "go is missing: install the version that go.mod names ($(awk '$1 == "go" {print $2}' go.mod) or newer)" >&2
  exit 1
fi
if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: make sure that the equivalents of these are installed: ${packages[*]}" >&2
  exit 0
fi

missing=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing packages; as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
# Tests start a server of OpenSSH's by themselves: the installation starts none.
if [[ " ${missing[*]} " = *" openssh-server "* ]]; then
  mkdir -p /etc/ssh && touch /etc/ssh/sshd_not_to_be_run
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing ${missing[*]}"
# A package database that somebody has locked is waited for, up to ten minutes.
apt=(apt-get -o DPkg::Lock::Timeout=600 -q)
install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
"${install[@]}" || { "${apt[@]}" update && "${install[@]}"; }
