package reconcile

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// pulling is a pull of an image for one pod. It holds no worker.
type pulling struct {
	stop context.CancelFunc
	done bool
	err  error
}

// pullKey has the pod: another one may have other credentials.
type pullKey struct {
	uid   types.UID
	image string
}

// errPulling says that a start has to wait for its image. The end of the pull queues the pod.
var errPulling = errors.New("the image is being pulled")

// pullLook is how long a pod that waits for its image is left alone otherwise.
const pullLook = time.Minute

// pull begins a pull, or returns how the one that was begun ended.
func (r *Reconciler) pull(ctx context.Context, p *corev1.Pod, image string, f pod.Facts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pullKey{p.UID, image}
	known := r.pulls[key]
	switch {
	case known == nil:
		ctx, stop := context.WithCancel(ctx)
		r.pulls[key] = &pulling{stop: stop}
		r.Events.Eventf(p, corev1.EventTypeNormal, "Pulling", "Pulling image %q", image)
		go r.fetch(ctx, p, r.pulls[key], &caissonv1.PullImageRequest{Name: image, Credentials: pod.Credentials(p, image, f.Secrets)})
	case known.done:
		delete(r.pulls, key)
		return known.err
	}
	return errPulling
}

func (r *Reconciler) fetch(ctx context.Context, p *corev1.Pod, into *pulling, req *caissonv1.PullImageRequest) {
	defer into.stop()
	begin := time.Now()
	_, err := r.Caisson.PullImage(ctx, req, nil)
	if err == nil {
		r.Events.Eventf(p, corev1.EventTypeNormal, "Pulled", "Pulled image %q in %s", req.Name, time.Since(begin).Round(time.Millisecond))
	} else {
		err = &imageError{err}
	}
	r.mu.Lock()
	into.done, into.err = true, err
	r.mu.Unlock()
	r.queue.Add(p.UID)
}

// endPulls ends the pulls of a pod that is gone.
func (r *Reconciler) endPulls(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, known := range r.pulls {
		if key.uid == uid {
			known.stop()
			delete(r.pulls, key)
		}
	}
}
