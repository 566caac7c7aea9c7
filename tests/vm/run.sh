#!/usr/bin/env bash
# Runs suites that need root in a virtual machine: Debian's cloud kernel, cgroup v2
# only, /run noexec. Needs neither root nor KVM.
#   tests/vm/run.sh [-run PATTERN] [SUITE...]    all of tests/vm/suites by default
#   scripts/cross.sh arm64 tests/vm/run.sh ...    the same on arm64, of tests/vm/suites-arm64
# The suites run in two machines side by side, of one processor each: emulating two
# processors in one machine costs more than it gives, as most of the tests wait for
# one process at a time. Leaves build/vm/results.N.log (build/arm64/vm), all that the
# suites of lane N printed, and console.N.log, all that its kernel printed. CAISSON_VM_LIMIT
# is the time in seconds that a virtual machine may take. A failed test runs once more.
set -euo pipefail
cd "$(dirname "$0")/../.."

here=tests/vm
arch=$(go env GOARCH)
case $arch in
  amd64) out=build/vm list=$here/suites package=qemu-system-x86 ;;
  arm64) out=build/arm64/vm list=$here/suites-arm64 package=qemu-system-arm ;;
  *) echo "test-vm: $arch is none of amd64, arm64" >&2; exit 1 ;;
esac
limit=${CAISSON_VM_LIMIT:-$([ "$arch" = amd64 ] && echo 1500 || echo 3000)}

lines() { sed -e 's/#.*//' -e '/^ *$/d' "$1"; }

# What makes an emulated processor fast: the TSC as the clock instead of a device
# (hpet, tsc), timers that do not each program one (highres), none of the detours
# that keep real processors from leaking (mitigations), and no features that cost
# more to emulate than they give (qemu64). A fault of the kernel ends the machine.
kernel_args=(root=/dev/nvme0n1 rw quiet mitigations=off rcupdate.rcu_expedited=1 oops=panic panic=-1)

boot() { # LANE
  local console=$out/console.$1.log results=$out/results.$1.log machine
  case $arch in
    amd64)
      machine=(qemu-system-x86_64 -machine "pc,hpet=off" -cpu qemu64 -serial "file:$console" -serial "file:$results")
      kernel_args+=(console=ttyS0 results=/dev/ttyS1 tsc=reliable highres=off) ;;
    arm64) # its second serial port is not usable
      machine=(qemu-system-aarch64 -machine "virt,gic-version=3" -cpu cortex-a72 -serial "file:$console"
        -device virtio-serial-pci -chardev "file,id=results,path=$results" -device "virtserialport,chardev=results")
      kernel_args+=(console=ttyAMA0 results=/dev/vport0p1) ;;
  esac
  timeout --foreground --kill-after=5 "$limit" "${machine[@]}" \
    -accel tcg -smp 1 -m 2048 -nodefaults -display none -no-reboot \
    -kernel $out/kernel/vmlinuz -append "${kernel_args[*]} lane=$1" \
    -drive file=$out/disk.img,format=raw,if=none,id=root,snapshot=on,cache=unsafe \
    -device nvme,drive=root,serial=root < /dev/null
}

pattern=.
if [ "${1-}" = -run ]; then
  pattern=$2
  shift 2
fi
# A line of suites is LANE SUITE SCOPE. Suites that are named here go into lane 1; of
# one that the file does not name, all tests run.
mapfile -t suites < <(lines "$list")
if [ $# -gt 0 ]; then
  mapfile -t suites < <(
    for named; do
      printf '%s\n' "${suites[@]}" "1 $named all" | awk -v named="$named" '$2 == named && !found { print 1, $2, $3; found = 1 }'
    done)
fi
mapfile -t lanes < <(printf '%s\n' "${suites[@]}" | cut -d ' ' -f 1 | sort -u)

mkdir -p $out
exec 9> $out/lock
flock --nonblock 9 || { echo "test-vm: another one is running in $out" >&2; exit 1; }
scripts/setup.sh $package e2fsprogs
$here/image.sh $out "$pattern" "${suites[@]}"

echo "test-vm: running ${#suites[@]} suites in ${#lanes[@]} machines, at most $limit s"
start=$SECONDS failed=0 pids=()
for lane in "${lanes[@]}"; do
  : > "$out/console.$lane.log" > "$out/results.$lane.log"
  boot "$lane" &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || { failed=1; echo "FAIL	qemu ended with $? (124: the time limit)"; }
done
echo "test-vm: the virtual machines took $((SECONDS - start)) s"

rm -f $out/failed
for lane in "${lanes[@]}"; do
  of_lane=$(printf '%s\n' "${suites[@]}" | awk -v lane="$lane" '$1 == lane { print $2 }' | xargs)
  code=0
  awk -v suites="$of_lane" -v failures=$out/failed -f $here/report.awk "$out/results.$lane.log" || code=$?
  case $code in
    0) ;;
    2) [ $failed = 1 ] || failed=2 ;;
    *) failed=1 ;;
  esac
  if grep -aq 'Kernel panic' "$out/console.$lane.log"; then
    failed=1
    echo "FAIL	the kernel of lane $lane panicked"
  fi
  [ $failed = 0 ] || { echo "--- the end of the kernel's console of lane $lane"; tail -n 50 "$out/console.$lane.log"; }
done

# A failed test runs once more, alone, as scripts/gotest.sh does it on the host.
if [ $failed = 2 ] && [ -z "${CAISSON_VM_AGAIN-}" ] && [ "$(wc -l < $out/failed)" -le 3 ]; then
  mapfile -t tests < <(cut -d ' ' -f 2 $out/failed | sort -u)
  mapfile -t again < <(cut -d ' ' -f 1 $out/failed | sort -u)
  flaky=$(sed 's/\(.*\) \(.*\)/FLAKY\t\1\t\2 failed, and passed alone: mend it/' $out/failed)
  flock --unlock 9
  CAISSON_VM_AGAIN=1 tests/vm/run.sh -run "^($(IFS='|'; echo "${tests[*]}"))\$" "${again[@]}" || exit 1
  echo "$flaky"
  exit 0
fi
exit $failed
