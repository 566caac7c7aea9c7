#!/usr/bin/env bash
# Runs suites that need root in a virtual machine: Debian's cloud kernel, cgroup v2
# only, /run noexec. Needs neither root nor KVM.
#   tests/vm/run.sh [-run PATTERN] [SUITE...]    all of tests/vm/suites by default
# Leaves build/vm/results.log, all that the suites printed, and build/vm/console.log,
# all that the kernel printed. CAISSON_VM_LIMIT is the time in seconds that the
# virtual machine may take.
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/vm
out=build/vm
limit=${CAISSON_VM_LIMIT:-900}

lines() { sed -e 's/#.*//' -e '/^ *$/d' "$1"; }

# What makes an emulated processor fast: the TSC as the clock instead of a device
# (hpet, tsc), timers that do not each program one (highres), none of the detours
# that keep real processors from leaking (mitigations), and no features that cost
# more to emulate than they give (qemu64). A fault of the kernel ends the machine.
kernel_args=(root=/dev/nvme0n1 rw console=ttyS0 quiet
  tsc=reliable highres=off mitigations=off rcupdate.rcu_expedited=1
  oops=panic panic=-1)

boot() {
  timeout --foreground --kill-after=5 "$limit" qemu-system-x86_64 \
    -machine pc,hpet=off -accel tcg,thread=multi -cpu qemu64 -smp 2 -m 2048 \
    -nodefaults -display none -no-reboot \
    -kernel $out/kernel/vmlinuz -append "${kernel_args[*]}" \
    -drive file=$out/disk.img,format=raw,if=none,id=root,snapshot=on,cache=unsafe \
    -device nvme,drive=root,serial=root \
    -serial file:$out/console.log -serial file:$out/results.log < /dev/null
}

pattern=.
if [ "${1-}" = -run ]; then
  pattern=$2
  shift 2
fi
if [ $# -gt 0 ]; then suites=("$@"); else mapfile -t suites < <(lines $here/suites); fi

mkdir -p $out
exec 9> $out/lock
flock --nonblock 9 || { echo "test-vm: another one is running in $out" >&2; exit 1; }
scripts/setup.sh qemu-system-x86 e2fsprogs
$here/image.sh "$pattern" "${suites[@]}"

: > $out/console.log > $out/results.log
echo "test-vm: running ${#suites[@]} suites, at most $limit s"
start=$SECONDS ended=0
boot || ended=$?
echo "test-vm: the virtual machine took $((SECONDS - start)) s"

failed=0
[ "$ended" = 0 ] || { failed=1; echo "FAIL	qemu ended with $ended (124: the time limit)"; }
awk -v suites="${suites[*]}" -f $here/report.awk $out/results.log || failed=1
if grep -aq 'Kernel panic' $out/console.log; then
  failed=1
  echo "FAIL	the kernel panicked"
fi
[ $failed = 0 ] || { echo "--- the end of the kernel's console"; tail -n 50 $out/console.log; }
echo "not run in the virtual machine: $(lines $here/exceptions | wc -l) tests"
lines $here/exceptions | sed 's/^/  /'
exit $failed
