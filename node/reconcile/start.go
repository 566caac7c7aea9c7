package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
)

// start starts a container. What keeps it from that is noted, and the time to try again returned.
func (r *Reconciler) start(ctx context.Context, p *corev1.Pod, s *start) time.Duration {
	if wait := r.tooSoon(p.UID); wait > 0 {
		return wait
	}
	err := r.run(ctx, p, s)
	if err == nil || errors.Is(err, sbxerr.Exists) { // the answer to an earlier call was lost
		r.clear(p.UID)
		r.Events.Eventf(p, corev1.EventTypeNormal, "Started", "Container %s started", s.container.Name)
		return 0
	}
	if errors.Is(err, errPulling) {
		return pullLook
	}
	n := explain(err)
	r.Events.Event(p, corev1.EventTypeWarning, n.reason, n.message)
	return r.failedStart(p.UID, n)
}

func (r *Reconciler) run(ctx context.Context, p *corev1.Pod, s *start) error {
	f, err := r.facts(ctx, p)
	if err != nil {
		return err
	}
	f.Try, f.Backoff = s.try, s.backoff
	if f.Entrypoint, f.Cmd, err = r.image(ctx, p, s.container, f); err != nil {
		return err
	}
	if len(pod.Ports(p)) > 0 {
		f.Ingress = r.ingress(ctx, p)
	}
	spec, err := pod.Request(p, s.container, r.Offer, f)
	if err != nil {
		return err
	}
	if err := r.makeVolumes(ctx, p, f); err != nil {
		return err
	}
	_, err = r.Caisson.RunDetached(ctx, spec)
	return err
}

// facts gets what a pod refers to, and its address.
func (r *Reconciler) facts(ctx context.Context, p *corev1.Pod) (pod.Facts, error) {
	f := pod.Facts{Node: r.Node, HostIP: r.HostIP, Files: r.filesOf(p)}
	err := errors.Join((&objects{client: r.Client}).fill(ctx, p, &f), r.fillClaims(ctx, p, &f), r.fillTokens(ctx, p, &f))
	if err != nil || r.Addresses == nil {
		return f, err
	}
	f.PodIP, err = r.Addresses.Take(p.UID)
	return f, err
}

func (r *Reconciler) makeVolumes(ctx context.Context, p *corev1.Pod, f pod.Facts) error {
	for _, v := range pod.Volumes(p) {
		req := &caissonv1.CreateVolumeRequest{Name: v.Name}
		if v.Size > 0 {
			req.SizeBytes = &v.Size
		}
		if _, err := r.Caisson.CreateVolume(ctx, req); err != nil {
			return err
		}
	}
	return r.writeVolumes(p, f)
}

// image returns what an image runs by itself, and pulls it where the pod's policy says so.
func (r *Reconciler) image(ctx context.Context, p *corev1.Pod, c corev1.Container, f pod.Facts) (entry, args []string, err error) {
	if c.ImagePullPolicy == corev1.PullAlways && hasRegistry(c.Image) {
		if err := r.pull(ctx, p, c.Image, f); err != nil {
			return nil, nil, err
		}
	}
	i, err := r.Caisson.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: c.Image})
	if errors.Is(err, sbxerr.ImageNotFound) && c.ImagePullPolicy != corev1.PullNever && hasRegistry(c.Image) {
		if err := r.pull(ctx, p, c.Image, f); err != nil {
			return nil, nil, err
		}
		i, err = r.Caisson.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: c.Image})
	}
	if err != nil {
		return nil, nil, &imageError{err}
	}
	var config struct {
		Config struct{ Entrypoint, Cmd []string }
	}
	if len(i.ConfigJson) > 0 {
		if err := json.Unmarshal(i.ConfigJson, &config); err != nil {
			return nil, nil, fmt.Errorf("the configuration of the image: %w", err)
		}
	}
	return config.Config.Entrypoint, config.Config.Cmd, nil
}

// hasRegistry says that an image's name begins with a host. Others are images of the daemon.
func hasRegistry(image string) bool {
	host, _, ok := strings.Cut(image, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// imageError is about an image that is not there.
type imageError struct{ error }

func (e *imageError) Unwrap() error { return e.error }
