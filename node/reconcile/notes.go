package reconcile

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
)

// note is why a container does not run.
type note struct {
	reason, message string
	code            int32 // the container ended so before it ran; 0: it has not
	final           bool  // no later try can succeed
}

// failure counts starts of a pod that failed.
type failure struct {
	count int
	until time.Time
}

// explain turns an error of a start into the words of Kubernetes.
func explain(err error) note {
	var missing *pod.Missing
	if errors.As(err, &missing) {
		return note{reason: "CreateContainerConfigError", message: missing.Error()}
	}
	var claim *pod.ClaimError
	if errors.As(err, &claim) {
		if claim.Final {
			return note{reason: "CaissonRefused", message: claim.Error(), final: true}
		}
		return note{reason: "CreateContainerConfigError", message: claim.Error()}
	}
	var e *api.Error
	if !errors.As(err, &e) {
		return note{reason: "CreateContainerError", message: err.Error()}
	}
	n := note{reason: "CreateContainerError", message: e.Error()}
	if e.Remedy != "" {
		n.message += "; " + e.Remedy
	}
	var image *imageError
	switch {
	case errors.As(err, &image):
		n.reason = "ErrImagePull"
	case errors.Is(e, sbxerr.CommandAbsent):
		n.reason, n.code = "StartError", 127
	case errors.Is(e, sbxerr.NotExecutable):
		n.reason, n.code = "StartError", 126
	case !e.Retryable && (e.Class == sbxerr.ClassInput || e.Class == sbxerr.ClassPolicy):
		n.reason, n.final = "CaissonRefused", true
	}
	return n
}

// ends says that a pod fails by the note: it is refused, or its command cannot start and must not
// be tried again.
func (n note) ends(p *corev1.Pod, ran bool) bool {
	never := p.Spec.RestartPolicy == corev1.RestartPolicyNever
	return n.final && (never || !ran) || n.code != 0 && never
}

func (r *Reconciler) noteOf(uid types.UID) note {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[uid]
}

func (r *Reconciler) clear(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.notes, uid)
	delete(r.failures, uid)
}

// firstRetry is the wait after a start that failed; it doubles.
const firstRetry = time.Second

// failedStart notes why a start failed and returns when the next one is.
func (r *Reconciler) failedStart(uid types.UID, n note) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failures[uid]
	wait := min(firstRetry<<min(f.count, 10), lastBackoff)
	r.failures[uid] = failure{count: f.count + 1, until: time.Now().Add(wait)}
	r.notes[uid] = n
	return wait
}

// tooSoon is how long a pod has to wait before its next start.
func (r *Reconciler) tooSoon(uid types.UID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.failures[uid].until)
}
