# Prints the names of the tests that a package runs in the virtual machine. Directives
# above a test say whether it depends on the kernel; suites says more.
#   awk -v scope=all|kernel -f select.awk PACKAGE/*_test.go
FNR == 1 || /^$/ { kernel = host = 0 }
/^\/\/caisson:kernel$/ { kernel = 1 }
/^\/\/caisson:host / { host = 1 }
/^func Test[A-Z]/ && !/^func TestMain\(/ {
  split($2, name, "(")
  if (scope == "all" ? !host : kernel) print name[1]
}
