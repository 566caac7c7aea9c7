package network

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// authors are the commands that the records of connections and questions to what
// name, each once.
func authors(t *testing.T, s sandbox, host string) []string {
	t.Helper()
	var list []string
	for _, e := range traffic(t, s) {
		if (e.Name == host || e.Address == host) && !slices.Contains(list, e.Exec) {
			list = append(list, e.Exec)
		}
	}
	return list
}

// script runs a script of the client in s. It begins with a pause: what is tried at
// once has no certain author, because the kernel's clock is too coarse.
func (s sandbox) script(t *testing.T, text string) (exec string) {
	t.Helper()
	var r struct {
		Exec     string
		ExitCode int `json:"exit_code"`
	}
	s.of.Run(t, "exec", "--json", s.id, "--", "sh", "-c", "cd /workspace; sleep 0.05; "+text).JSON(t, &r)
	return r.Exec
}

// An attempt is put down to the command that made it, where nobody else can have.
func TestAuthors(t *testing.T) {
	reaches(t, "web.example:80", "api.web.example:80", "db.example:5432")
	s := create(t, "--allow", "web.example", "--allow", "api.web.example", "--allow", "db.example:5432")
	first := s.script(t, "./client http http://web.example/; ./client http http://other.example/; true")
	if got := authors(t, s, "web.example"); !slices.Equal(got, []string{first}) {
		t.Errorf("alone, command %s: %q", first, got)
	}
	if got := authors(t, s, "other.example"); !slices.Equal(got, []string{first}) {
		t.Errorf("a question that was refused, of command %s: %q", first, got)
	}
	second := s.script(t, "./client echo db.example:5432; (sleep 1; ./client http http://api.web.example/) > /dev/null 2>&1 &")
	if got := authors(t, s, "db.example"); !slices.Equal(got, []string{second}) {
		t.Errorf("the next one, command %s: %q", second, got)
	}
	s.script(t, "./client http http://bad.web.example/; sleep 1.5") // a child of the second is there
	for _, host := range []string{"api.web.example", "bad.web.example"} {
		if got := authors(t, s, host); !slices.Equal(got, []string{""}) {
			t.Errorf("with a child of an earlier command, %s is of %q", host, got)
		}
	}
	held := s.held(t, "db.example:5432")
	s.script(t, "./client http http://absent.example/; true")
	if got := authors(t, s, "absent.example"); !slices.Equal(got, []string{""}) {
		t.Errorf("beside another command: %q", got)
	}
	daemon.Run(t, "update", "--allow", "web.example", s.id)
	<-held
	if last := s.script(t, "./client http http://gone.example/; true"); !slices.Equal(authors(t, s, "gone.example"), []string{last}) {
		t.Errorf("alone again, command %s: %q", last, authors(t, s, "gone.example"))
	}
	if said := daemon.Run(t, "policy", "log", "--exec", first, s.id).Stdout; strings.Count(said, "\n") < 3 || strings.Count(said, " #"+first+"\n") != strings.Count(said, "\n") {
		t.Errorf("of command %s: %q", first, said)
	}
}

// A connection that waited for the gateway until another command ran is still of
// the one that made it.
func TestAuthorOfWhatWaited(t *testing.T) {
	reaches(t, elsewhere+":5432")
	s := create(t, "--allow", elsewhere+":5432")
	pid := gateway(t, daemon)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waited := s.script(t, "./client echo "+elsewhere+":5432 & sleep 0.3; kill -9 $!; wait; true")
	time.AfterFunc(500*time.Millisecond, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	other := s.script(t, "sleep 1.5; ./client echo "+elsewhere+":5432")
	list := s.recorded(t, func(list []entry) bool { return len(list) >= 2 })
	if len(list) != 2 || list[0].Exec != waited || list[1].Exec != other {
		t.Errorf("commands %s and %s: %+v", waited, other, list)
	}
}
