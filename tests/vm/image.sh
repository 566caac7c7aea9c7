#!/usr/bin/env bash
# Makes what the virtual machine boots from: kernel/vmlinuz and disk.img, an ext4 of a
# Debian-like root with our programs and the suites.
#   tests/vm/image.sh OUT PATTERN 'LANE SUITE SCOPE'...   PATTERN: of the names of tests
# Needs no root and mounts nothing. The kernel stays until make clean. Under scripts/cross.sh
# all of it is of that architecture, and its root has packages of Debian instead of this
# host's programs.
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/vm
out=$1
tree=$out/tree
pattern=$2
plan=("${@:3}")
arch=$(go env GOARCH)
bin=bin host= # the programs and the root to take others from
[ "$arch" = "$(go env GOHOSTARCH)" ] || bin=build/$arch/bin host=$out/kernel
suites=()
declare -A scope
for line in "${plan[@]}"; do
  read -r _ suite of_suite <<< "$line"
  suites+=("$suite")
  scope[$suite]=$of_suite
done

# Programs of the host that busybox is no match for.
programs=(nsenter getent mkfs.ext4 ip {ip,ip6}tables{,-nft,-legacy}{,-save,-restore})
# The parts of the kernel's modules that a host of ours may load.
modules=(fs/overlayfs drivers/block/loop.ko drivers/net/veth.ko drivers/net/dummy.ko net/{netfilter,ipv4,ipv6,bridge,sctp,dccp,vmw_vsock} lib crypto arch)
# What tests build with the go command, which the virtual machine does not have.
prebuilt=(runtime/posture/testdata/pid1 tests/escape/prober tests/network/client)
if [ -n "$host" ]; then
  modules+=(drivers/virtio drivers/char/virtio_console.ko) # the channel of results
  prebuilt+=(cmd/caisson-init cmd/caisson-gateway/confine/testdata/taken)
fi
# The packages of the programs, where they are not this host's.
packages=(busybox-static util-linux libc-bin e2fsprogs iproute2 iptables)

die() { echo "test-vm: $*" >&2; exit 1; }

step() { # WHAT COMMAND...
  local what=$1 start=${EPOCHREALTIME/[.,]/}
  shift
  "$@"
  local ms=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
  printf 'test-vm: %-24s %4d.%d s\n' "$what" $((ms / 1000)) $((ms % 1000 / 100))
}

# fetch_kernel unpacks Debian's current cloud kernel.
fetch_kernel() {
  local deb
  [ ! -e $out/kernel/vmlinuz ] || return 0
  rm -rf $out/kernel
  mkdir -p $out/kernel/deb
  if [ -n "$host" ]; then
    scripts/foreign.sh "$arch" $out/kernel/deb --depends "linux-image-cloud-$arch" "${packages[@]}"
  else
    fetch_own_kernel
  fi
  for deb in $out/kernel/deb/*.deb; do dpkg-deb -x "$deb" $out/kernel; done
  rm -r $out/kernel/deb
  mv $out/kernel/boot/vmlinuz-* $out/kernel/vmlinuz
}

fetch_own_kernel() {
  local package
  package=$(kernel_package)
  if [ -z "$package" ]; then # a fresh machine has no lists
    apt-get update -q >&2
    package=$(kernel_package)
  fi
  [ -n "$package" ] || die "apt knows no linux-image-cloud-$arch"
  (cd $out/kernel/deb && apt-get download -q -o APT::Sandbox::User=root "$package") >&2 || die "download $package with apt"
}

# The package of that name is empty: it depends on the kernel of today.
kernel_package() {
  apt-cache depends "linux-image-cloud-$arch" | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }'
}

compile_suites() {
  local package flags=()
  [ -z "$host" ] || flags=(-trimpath) # as the programs are built: packages compile once
  mkdir -p $out/tests
  for package in "${suites[@]}"; do
    # With libseccomp, which compiles what filters are compared with; so cgo, linked
    # statically as the daemon is.
    CGO_ENABLED=1 go test -c "${flags[@]}" -tags 'netgo osusergo' -ldflags '-linkmode external -extldflags "-static"' \
      -o "$out/tests/${package//\//_}.test" "./$package"
  done
  for package in "${prebuilt[@]}"; do
    CGO_ENABLED=0 go build -trimpath -o "$out/tests/$(basename "$package")" "./$package"
  done
}

make_tree() {
  rm -rf $tree
  mkdir -p $tree/usr/{bin,sbin,lib,lib64} $tree/{etc,proc,sys,dev,run,tmp,root,home,src,tests} $tree/var/{tmp,lib} $tree/opt/caisson
  ln -s usr/bin usr/sbin usr/lib usr/lib64 $tree/ # as on Debian
  chmod 1777 $tree/tmp $tree/var/tmp
  install_userland
  install_modules
  cp "$bin"/* $tree/opt/caisson/
  install -m 0755 $here/init.sh $tree/sbin/init
  install -m 0755 $here/go.sh $tree/bin/go
  for suite in "${suites[@]}"; do install_suite "$suite"; done
  printf '%s\n' "${plan[@]}" > $tree/etc/suites
}

install_userland() {
  local path
  install -m 0755 "$(find_program busybox)" $tree/bin/busybox
  while read -r path; do
    mkdir -p "$tree/$(dirname "$path")"
    [ -e "$tree/$path" ] || ln -s /bin/busybox "$tree/$path"
  done < <(busybox --list-full)
  for path in "${programs[@]}"; do install_program "$path"; done
  install_libraries
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/nonexistent:/bin/false' > $tree/etc/passwd
  printf '%s\n' 'root:x:0:' 'tty:x:5:' 'nogroup:x:65534:' > $tree/etc/group
  printf '%s\n' '127.0.0.1 localhost vm' '::1 localhost' > $tree/etc/hosts
  echo vm > $tree/etc/hostname
}

# find_program prints the path of a program, which may be an alternative that a package's
# scripts choose. A link to an absolute path leads out of a root that is not this host's.
find_program() { # NAME
  local root name dir path
  root=$(realpath "$host/")
  for name in "$1" "${1/tables/tables-nft}"; do
    for dir in usr/local/sbin usr/local/bin usr/sbin usr/bin sbin bin; do
      path=$(readlink -e "$host/$dir/$name") && [[ $path = "$root"* ]] || continue
      echo "$path"
      return
    done
  done
  die "$1 is missing: make setup"
}

# install_program copies a program with the libraries it needs.
install_program() { # NAME
  local path library
  path=$(find_program "$1")
  rm -f $tree/usr/{bin,sbin}/"$1"
  install -m 0755 "$path" "$tree/usr/sbin/$1"
  [ -z "$host" ] || return 0 # no program of this host's says which it needs
  while read -r library; do
    [ -e "$tree/$library" ] || install -D -m 0755 "$(readlink -f "$library")" "$tree/$library"
  done < <(ldd "$path" | grep -oE '/[^ ]+')
}

# What programs load by name; all libraries, where install_program knows of none.
install_libraries() {
  if [ -z "$host" ]; then
    cp -r --parents /usr/lib/*/xtables $tree/
    return
  fi
  cp -a "$host"/lib/ld-linux-* "$host"/lib/*-linux-gnu "$host"/usr/lib/*-linux-gnu $tree/usr/lib/
}

# The kernel loads modules itself, by the modprobe of /sbin, as on any host.
install_modules() {
  local from to module
  from=$(echo $out/kernel/lib/modules/*)
  to=$tree/lib/modules/$(basename "$from")
  mkdir -p "$to"
  cp "$from"/modules.{order,builtin,builtin.modinfo} "$to/"
  for module in "${modules[@]}"; do
    mkdir -p "$to/kernel/$(dirname "$module")"
    cp -r "$from/kernel/$module" "$to/kernel/$module"
  done
  busybox depmod -b $tree "$(basename "$from")"
}

install_suite() { # PACKAGE
  install -D -m 0755 "$out/tests/${1//\//_}.test" "$tree/tests/${1//\//_}.test"
  mkdir -p "$tree/src/$1"
  [ ! -d "$1/testdata" ] || cp -r "$1/testdata" "$tree/src/$1/"
  run_pattern "$1" > "$tree/src/$1/.run"
  for package in "${prebuilt[@]}"; do
    install -m 0755 "$out/tests/$(basename "$package")" "$tree/tests/$(basename "$package")"
  done
}

# of_turn takes a part of the tests with CAISSON_TEST_TURN=NUMBER/TURNS. Tests that were asked for,
# such as one that failed, all run.
of_turn() { awk -v turn="${CAISSON_TEST_TURN-}" -v asked="$pattern" 'BEGIN { split(turn, of, "/") } turn == "" || asked != "." || NR % of[2] == of[1] % of[2]'; }

# run_pattern makes of the tests that a suite runs here what -test.run takes.
run_pattern() { # SUITE
  local tests
  tests=$(awk -v scope="${scope[$1]}" -f tests/select.awk "$1"/*_test.go | grep -E "$pattern" | of_turn | paste -sd '|') ||
    [ "$pattern" != . ] || die "$1 has no test to run"
  echo "^(${tests:-none})$"
}

# The files belong to root in the image, whoever owns them here.
make_disk() {
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(unshare --map-root-user)
  truncate -s 0 $out/disk.img
  PATH=$PATH:/usr/sbin:/sbin "${as_root[@]}" mke2fs -q -t ext4 -L root -d $tree $out/disk.img 6G
}

mkdir -p $out
step "kernel" fetch_kernel
step "compile the suites" compile_suites
step "lay out the root" make_tree
step "make the disk" make_disk
