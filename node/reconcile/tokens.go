package reconcile

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/caisson-run/caisson/node/pod"
)

// tokenKey tells a pod's tokens apart.
type tokenKey struct {
	uid types.UID
	pod.Token
}

// token is one that the API server gave. A restarted program asks for new ones.
type token struct {
	text       string
	renew, end time.Time
}

// oldestToken is when a token is renewed at the latest, as the kubelet's.
const oldestToken = 24 * time.Hour

// fillTokens gets the tokens of a pod's service account, bound to the pod.
func (r *Reconciler) fillTokens(ctx context.Context, p *corev1.Pod, f *pod.Facts) error {
	f.Tokens = map[pod.Token]string{}
	for _, t := range pod.Tokens(p) {
		text, err := r.token(ctx, p, t)
		if err != nil {
			return err
		}
		f.Tokens[t] = text
	}
	return nil
}

// token returns a pod's token: a new one if four fifths of the life of the last one are over before
// the files are looked at again. While none can be had, the last one counts to its end.
func (r *Reconciler) token(ctx context.Context, p *corev1.Pod, t pod.Token) (string, error) {
	key, now := tokenKey{p.UID, t}, time.Now()
	r.mu.Lock()
	last := r.tokens[key]
	r.mu.Unlock()
	if now.Add(r.Refresh).Before(last.renew) {
		return last.text, nil
	}
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &t.Seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
	}}
	if t.Audience != "" {
		req.Spec.Audiences = []string{t.Audience}
	}
	made, err := r.Client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.Spec.ServiceAccountName, req, metav1.CreateOptions{})
	if err != nil && now.Before(last.end) {
		r.Log.Warn("renew a token", "pod", p.Namespace+"/"+p.Name, "audience", t.Audience, "error", err)
		return last.text, nil
	}
	if err != nil {
		return "", err
	}
	end := made.Status.ExpirationTimestamp.Time
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[key] = token{text: made.Status.Token, renew: now.Add(min(end.Sub(now)*4/5, oldestToken)), end: end}
	return made.Status.Token, nil
}
