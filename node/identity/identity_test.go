package identity

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestServingIsAskedFor: the request is what a kubelet's is, and until it is approved clients are
// turned away.
func TestServingIsAskedFor(t *testing.T) {
	client := fake.NewClientset()
	c := Config{Node: "n", Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	certificate, err := c.Serving(client, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificate(nil); !errors.Is(err, errUnsigned) {
		t.Errorf("a client gets %v", err)
	}
	var asked []certificates.CertificateSigningRequest
	for begin := time.Now(); len(asked) == 0 && time.Since(begin) < 10*time.Second; time.Sleep(20 * time.Millisecond) { // the cluster is asked in the background
		l, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		asked = l.Items
	}
	if len(asked) != 1 || asked[0].Spec.SignerName != certificates.KubeletServingSignerName {
		t.Fatalf("asked for %+v", asked)
	}
	block, _ := pem.Decode(asked[0].Spec.Request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if r.Subject.String() != "CN=system:node:n,O=system:nodes" || len(r.IPAddresses) != 1 || r.IPAddresses[0].String() != "192.0.2.1" || r.DNSNames[0] != "n" {
		t.Errorf("asked for %s, %v, %v", r.Subject, r.IPAddresses, r.DNSNames)
	}
}
