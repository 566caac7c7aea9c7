# Reads results.log and says for each suite what go test would say, and how many tests
# passed and failed. A suite that did not end, passed no test or skipped one has failed.
# Each failed test goes into the file failures, as SUITE TEST. The exit code is 2 if
# they explain it all: they may run once more. It is 1 for anything else.
#   awk -v suites="A B" -v failures=FILE -f report.awk results.log
BEGIN { count = split(suites, order, " ") }

{ sub(/\r$/, "") }
$1 == "@@" && $2 == "begin" { suite = $3; began[suite] = $4; next }
$1 == "@@" && $2 == "end" { code[$3] = $4; took[$3] = $5 - began[$3]; suite = ""; next }
$1 == "@@" && $2 == "ready" { ready = 1 }
$1 == "@@" && $2 == "done" { complete = 1 }
suite == "" { next }

{ output[suite] = output[suite] $0 "\n" }
/^--- PASS: / { passed[suite]++ }
/^ *--- SKIP: / { skipped[suite] = skipped[suite] " " $3 }
/^ *--- FAIL: / { failed[suite] = failed[suite] $0 "\n" }
/^--- FAIL: / { tests[suite]++; print suite, $3 >> failures }

function verdict(s) {
  if (!(s in began)) return "it did not start"
  if (!(s in code)) return "it did not end"
  if (code[s] != 0) return "exit code " code[s]
  if (skipped[s] != "") return "skipped:" skipped[s] " (a test that cannot run here is marked, see tests/vm/suites)"
  if (!passed[s]) return "no test ran"
  return ""
}

END {
  for (i = 1; i <= count; i++) {
    s = order[i]
    why = verdict(s)
    if (why == "") {
      printf "ok  \t%s\t%ds\t%d tests\n", s, took[s], passed[s]
      continue
    }
    bad++
    if (!(s in code) || !tests[s] || skipped[s] != "") broken++
    printf "%s%sFAIL\t%s\t%ds\t%d tests passed, %d failed: %s\n", output[s], failed[s], s, took[s], passed[s], tests[s], why
  }
  if (!ready) print "FAIL\tthe virtual machine could not be set up"
  if (!complete) print "FAIL\tthe virtual machine did not come to its end"
  exit (broken || !ready || !complete) ? 1 : bad ? 2 : 0
}
