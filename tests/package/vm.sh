#!/usr/bin/env bash
# Installs, upgrades, reboots, removes and purges the .deb in a virtual machine with Debian's
# systemd and its cloud kernel. Needs root to lay out the machine's files, not KVM.
#   tests/package/vm.sh FIRST.deb NEXT.deb
# What the machine prints is in build/package-vm/results.log, and its console beside that.
set -euo pipefail
cd "$(dirname "$0")/../.."

first=$1 next=$2
out=build/package-vm
tree=$out/tree
limit=${CAISSON_VM_LIMIT:-1200}

scripts/setup.sh qemu-system-x86 e2fsprogs mmdebstrap
mkdir -p $out

# The kernel is that of tests/vm.
[ -e build/vm/kernel/vmlinuz ] || { echo "test-package: make test-vm fetches the kernel into build/vm/kernel" >&2; exit 1; }
version=$(basename build/vm/kernel/lib/modules/*)

if [ ! -e $out/base.tar ]; then
  sources=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -s "$file" ] || sources+=("$file")
  done
  mmdebstrap --quiet --mode=root --variant=minbase \
    --include=systemd,systemd-sysv,dbus,udev,kmod,iproute2,iptables,procps,passwd,util-linux,apparmor,libpam-systemd \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" $out/new.tar "${sources[@]}"
  mv $out/new.tar $out/base.tar
fi

rm -rf $tree
mkdir -p $tree
tar -xf $out/base.tar -C $tree --exclude='./dev/*'
mkdir -p $tree/usr/lib/modules $tree/test
cp -r "build/vm/kernel/lib/modules/$version" $tree/usr/lib/modules/
chroot $tree depmod "$version"
cp "$first" $tree/test/first.deb
cp "$next" $tree/test/next.deb
install -m 0755 tests/package/guest.sh $tree/test/guest.sh
cat > $tree/etc/systemd/system/package-test.service << 'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/test/guest.sh
StandardOutput=file:/dev/ttyS1
StandardError=file:/dev/ttyS1
TimeoutStartSec=infinity
[Install]
WantedBy=default.target
UNIT
ln -s /etc/systemd/system/package-test.service "$tree/etc/systemd/system/multi-user.target.wants/package-test.service"
sed -i 's/^After=.*/After=basic.target systemd-user-sessions.service/' $tree/etc/systemd/system/package-test.service
for unit in apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer dpkg-db-backup.timer getty@tty1.service serial-getty@ttyS0.service; do
  ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
rm -f $out/disk.img
PATH=$PATH:/usr/sbin:/sbin mke2fs -q -t ext4 -d $tree $out/disk.img 4G
rm -rf $tree

boot() { # NUMBER; systemd reboots, and qemu ends there
  timeout --foreground --kill-after=5 "$limit" nice -n 15 qemu-system-x86_64 \
    -machine pc,hpet=off -accel tcg,thread=multi -cpu qemu64 -smp 2 -m 2048 \
    -nodefaults -display none -no-reboot \
    -kernel build/vm/kernel/vmlinuz \
    -append "root=/dev/nvme0n1 rw console=ttyS0 quiet tsc=reliable highres=off mitigations=off rcupdate.rcu_expedited=1 oops=panic panic=-1 systemd.show_status=0" \
    -drive file=$out/disk.img,format=raw,if=none,id=root,cache=unsafe -device nvme,drive=root,serial=root \
    -serial "file:$out/console.$1.log" -serial "file:$out/results.$1.log" < /dev/null
}

failed=0
for n in 1 2; do
  rm -f $out/{console,results}.$n.log
  began=$SECONDS
  boot $n || failed=1
  echo "test-package: boot $n, $((SECONDS - began)) s with its end"
  cat $out/results.$n.log
  grep -q '^@@ .* done' $out/results.$n.log || { failed=1; echo "FAIL boot $n came to no end"; tail -n 30 $out/console.$n.log; }
  ! grep -aq '^FAIL' $out/results.$n.log || failed=1
done
exit $failed
