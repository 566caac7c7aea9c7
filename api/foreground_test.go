package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// played is a followed call whose daemon is the test.
type played struct {
	call *foreground[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]
	says chan *caissonv1.StreamExecResponse
	got  []string // signals, with the command that they are for
}

func (p *played) Send(m *caissonv1.StreamExecRequest) error {
	if n := m.GetSignal(); n != 0 {
		p.got = append(p.got, fmt.Sprintf("%s/%s %d", p.call.sandbox, p.call.exec, n))
	}
	return nil
}

func (p *played) Receive() (*caissonv1.StreamExecResponse, error) { return <-p.says, nil }
func (p *played) ResponseHeader() http.Header                     { return nil }
func (p *played) CloseRequest() error                             { return nil }
func (p *played) CloseResponse() error                            { return nil }

// A signal that comes while it is not known yet which command runs is kept, and goes to
// that command then.
func TestSignalBeforeTheCommandIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, told := make(chan syscall.Signal), make(chan *caissonv1.Exec)
		f := &foreground[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse]{
			dialect: execDialect, retry: &retry{}, rio: IO{Signals: signals, Started: func(e *caissonv1.Exec) { told <- e }},
		}
		p := &played{call: f, says: make(chan *caissonv1.StreamExecResponse)}
		f.follow = func(context.Context) stream[caissonv1.StreamExecRequest, caissonv1.StreamExecResponse] { return p }
		go func() {
			if _, err := f.run(t.Context(), &caissonv1.StreamExecRequest{}); err != nil {
				t.Error(err)
			}
		}()
		signals <- syscall.SIGTERM
		early := func(when string) {
			if synctest.Wait(); len(p.got) > 0 {
				t.Errorf("%s, it sent %q", when, p.got)
			}
		}
		early("before the daemon said which command runs")
		p.says <- &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Started{Started: &caissonv1.Exec{Id: "exec", SandboxId: "id"}}}
		early("before the caller was told")
		<-told
		synctest.Wait()
		if want := []string{"id/exec 15"}; !slices.Equal(p.got, want) {
			t.Errorf("sent %q, want %q", p.got, want)
		}
		p.says <- &caissonv1.StreamExecResponse{Kind: &caissonv1.StreamExecResponse_Result{}}
	})
}
