package network

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"time"
)

// selfSigned makes a certificate that nobody has to believe: the client looks at
// the name that the server was asked for.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// greetTLS says where it is and which name it was asked for.
func greetTLS(l net.Listener, cert tls.Certificate) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
			if s.Handshake() == nil {
				fmt.Fprintf(s, "I am %s, you asked for %s\n", c.LocalAddr().(*net.TCPAddr).IP, s.ConnectionState().ServerName)
				_ = s.CloseWrite()
			}
		}()
	}
}
