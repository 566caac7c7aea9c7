#!/usr/bin/env bash
# again.sh NAME FLAGS...: runs the program NAME of $KUBE, and again when it was killed, but not
# while the file NAME.away is there. Its PID is in NAME.pid.
name=$1
shift
while sleep 0.1; do
  [ ! -e "$name.away" ] || continue
  setpriv --pdeathsig KILL "$KUBE" "$name" "$@" &
  echo $! >"$name.pid"
  wait $!
done
