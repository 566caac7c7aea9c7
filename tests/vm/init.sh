#!/bin/sh
# PID 1 of the virtual machine. It sets it up as Debian sets up a host, runs the
# suites and writes what they print to the device that "results" of the kernel's arguments
# names. The lines that begin with "@@" are for report.awk.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
export CAISSON_VM=1 CAISSON_TEST_STRICT=1 CAISSON_BIN_DIR=/opt/caisson

say() { echo "@@ $*" >&3; }
argument() { sed -n "s/.*\<$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
seconds() { cut -d. -f1 /proc/uptime; }

# The mounts, with Debian's options: /run is noexec there.
mounts() {
  mount -t proc -o nosuid,nodev,noexec proc /proc &&
    mount -t sysfs -o nosuid,nodev,noexec sysfs /sys &&
    { [ -e /dev/null ] || mount -t devtmpfs -o nosuid,mode=0755 devtmpfs /dev; } &&
    mkdir -p /dev/pts /dev/shm &&
    mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=000 devpts /dev/pts &&
    mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm &&
    mount -t tmpfs -o nosuid,nodev,noexec,size=20%,mode=755 tmpfs /run &&
    mount -t tmpfs -o nosuid,nodev tmpfs /tmp &&
    mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup &&
    mount --make-rshared /
}

# The groups, as systemd leaves them where no unit asks for more: itself in one of
# its own, and two controllers handed down. Who needs more has to see to it.
cgroup_v2() {
  mkdir /sys/fs/cgroup/init.scope &&
    echo 1 > /sys/fs/cgroup/init.scope/cgroup.procs &&
    echo "+memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
}

# What systemd gives a service, a network that leads nowhere, and a protocol that
# Debian's kernel has but does not load by itself: a host without them would hold
# attacks by what it lacks.
host_like() {
  ulimit -Hn 524288 && ulimit -l 8192 &&
    modprobe loop && # systemd leaves its device where opening it loads it
    ip link set lo up &&
    ip link add eth0 type dummy && ip link set eth0 up &&
    ip addr add 10.0.2.15/24 dev eth0 && ip route add default via 10.0.2.2 &&
    ip -6 addr add fd00:2::15/64 dev eth0 && ip -6 route add default via fd00:2::2 &&
    hostname vm &&
    echo 10000 > /proc/sys/kernel/ns_last_pid && # no PID of a sandbox is one of the host's, as on a host that has run for a while
    modprobe -a iptable_filter ip6table_filter dccp_ipv4
}

# One process at a time can have a virtio port open: this one has it all the time. The kernel makes
# its node before it can be opened (ENXIO), and an exec that fails would end this shell.
open_results() {
  local device
  device=$(argument results)
  case $device in
    /dev/vport*) modprobe -a virtio_pci virtio_console && until [ -c "$device" ] && (: > "$device"); do sleep 0.1; done ;;
    *) stty -F "$device" raw ;;
  esac && exec 3> "$device"
}

run_suite() { # PACKAGE
  say "begin $1 $(seconds)"
  (cd "/src/$1" && exec "/tests/$(echo "$1" | tr / _).test" \
    -test.v -test.count=1 -test.timeout 20m -test.run "$(cat .run)") >&3 2>&3 < /dev/null 3>&-
  say "end $1 $? $(seconds)"
}

lane=
mounts && lane=$(argument lane)
[ -n "$lane" ] && cgroup_v2 && host_like && open_results && say "ready"
while read -r in suite _; do
  [ "$in" != "$lane" ] || run_suite "$suite"
done < /etc/suites
say "done $(seconds)"
poweroff -f
