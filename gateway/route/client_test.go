package route_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// certificate makes one that signed itself, as PEM, and its key as a secret holds it.
func certificate(t *testing.T, name string) (cert, secret string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), base64.StdEncoding.EncodeToString(private)
}

// An upstream is shown the certificate of the route, and another one when its key changes.
func TestClientCertificate(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Header.Get("X-Internal")+r.Header.Get("X-Other"))
	}))
	up.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	up.StartTLS()
	t.Cleanup(up.Close)
	cert, secret := certificate(t, "ann")
	_, foreign := certificate(t, "bob")
	r := policy.Route{
		Upstream: "https://example.com", ClientCert: cert, ClientKey: "tls", Strip: []string{"x-internal"},
		CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})),
	}
	f := newFixture(t, up, r)
	for _, tt := range []struct {
		secret string
		code   sbxerr.Code
		says   string
	}{
		{"", sbxerr.Secret, `the key "tls" of the client's certificate of the route up has no value`},
		{"!" + secret, sbxerr.Secret, "is not in base64"},
		{secret[8:], sbxerr.Secret, "is no private key in the form PKCS #8"},
		{foreign, sbxerr.Secret, "private key does not match public key"},
		{secret, "", "ann other"},
	} {
		values := map[string]io.Reader{"key": strings.NewReader(key)}
		if tt.secret != "" {
			values["tls"] = strings.NewReader(tt.secret)
		}
		if err := f.secrets.Set(values); err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequest(http.MethodGet, "http://"+string(name)+"/", nil)
		req.Header.Set("X-Internal", "mine")
		req.Header.Set("X-Other", "other")
		res, text := f.do(t, req)
		if u := f.use(t); u.Code != tt.code || !strings.Contains(text, tt.says) || tt.secret != "" && strings.Contains(text+u.Reason, tt.secret) {
			t.Errorf("%s: %s, %q, %+v", tt.says, res.Status, text, u)
		}
	}
	r.ClientCert, r.ClientKey = "", ""
	f = newFixture(t, up, r)
	if res, text := f.get(t, "/"); res.StatusCode != http.StatusBadGateway {
		t.Errorf("without a certificate: %s, %q", res.Status, text)
	}
}
