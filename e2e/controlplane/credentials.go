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
	"sync"

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
	certFile, keyFile, accountKey, tokensFile string
	tokens                                    map[string]string

	mu struct {
		sync.Mutex
		serving serving
	}
}

// serving is a certificate, followed by that of the CA that has signed it, and its
// key.
type serving struct {
	chain, key []byte
}

// newCredentials makes credentials and writes their files to dir. Those for clients,
// the serving certificate and the tokens, are those of another control plane, if that
// is not nil.
func newCredentials(dir string, access *credentials) (*credentials, error) {
	c := &credentials{
		certFile:   filepath.Join(dir, "serving.crt"),
		keyFile:    filepath.Join(dir, "serving.key"),
		accountKey: filepath.Join(dir, "service-account.key"),
		tokensFile: filepath.Join(dir, "tokens.csv"),
		tokens:     map[string]string{AdminUser: rand.Text(), LimitedUser: rand.Text()},
	}
	var err error
	if access == nil {
		err = c.renew()
	} else {
		c.tokens = access.tokens
		err = c.serve(access.serving())
	}
	if err != nil {
		return nil, err
	}
	account, err := newServiceAccountKey()
	if err != nil {
		return nil, err
	}
	for path, content := range map[string][]byte{c.accountKey: account, c.tokensFile: c.tokenTable()} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing credentials: %w", err)
		}
	}
	return c, nil
}

// renew makes a serving certificate, and a CA for it.
func (c *credentials) renew() error {
	chain, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return fmt.Errorf("making a serving certificate: %w", err)
	}
	return c.serve(serving{chain: chain, key: key})
}

// serve writes a certificate to where API servers look for it.
func (c *credentials) serve(s serving) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.serving = s
	// A server that finds only one of them new waits for the other.
	for path, content := range map[string][]byte{c.certFile: s.chain, c.keyFile: s.key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("writing a serving certificate: %w", err)
		}
	}
	return nil
}

func (c *credentials) serving() serving {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.serving
}

// ca returns what clients verify the serving certificate with.
func (c *credentials) ca() []byte {
	return c.serving().chain
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
