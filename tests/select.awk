# Prints the names of tests by the directives above them:
#   //caisson:kernel          another kernel, or cgroup v2, can make it fail
#   //caisson:host REASON     it does not run in the virtual machine
#   //caisson:smoke           it runs after each change (make test-touch)
#
#   awk -v scope=kernel|all|smoke -f select.awk PACKAGE/*_test.go
#
# "kernel" and "smoke" are tests with that directive, "all" are tests without "host".
FNR == 1 || /^$/ { split("", marked) }
/^\/\/caisson:[a-z]+/ { sub("//caisson:", "", $1); marked[$1] = 1 }
/^func Test[A-Z]/ && !/^func TestMain\(/ {
  split($2, name, "(")
  if (scope == "all" ? !("host" in marked) : (scope in marked)) print name[1]
}
