package controlplane

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/util/cert"
)

// Users of every control plane.
const (
	// AdminUser may do everything; it is in the group system:masters.
	AdminUser = "admin"
	// LimitedUser may only discover the API until a test grants it more.
	LimitedUser = "limited"
)

// credentials are what all API servers of one control plane share: the serving
// certificate and its CA, the service account key, and the users' tokens.
type credentials struct {
	ca                                        []byte
	certFile, keyFile, accountKey, tokensFile string
	tokens                                    map[string]string
}

// newCredentials makes credentials and writes their files to dir.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		certFile:   filepath.Join(dir, "serving.crt"),
		keyFile:    filepath.Join(dir, "serving.key"),
		accountKey: filepath.Join(dir, "service-account.key"),
		tokensFile: filepath.Join(dir, "tokens.csv"),
		tokens:     map[string]string{AdminUser: rand.Text(), LimitedUser: rand.Text()},
	}
	chain, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	c.ca = chain // The chain ends in the CA that signed the certificate.
	account, err := newServiceAccountKey()
	if err != nil {
		return nil, err
	}
	for path, content := range map[string][]byte{
		c.certFile: chain, c.keyFile: key, c.accountKey: account, c.tokensFile: c.tokenTable(),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing credentials: %w", err)
		}
	}
	return c, nil
}

func newServiceAccountKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("making a service account key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// tokenTable returns the token auth file: token, user, uid, groups.
func (c *credentials) tokenTable() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s,%s,%[2]s,system:masters\n", c.tokens[AdminUser], AdminUser)
	fmt.Fprintf(&b, "%s,%s,%[2]s,\n", c.tokens[LimitedUser], LimitedUser)
	return []byte(b.String())
}
