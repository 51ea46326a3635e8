package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// APIServer is one kube-apiserver.
type APIServer struct {
	*Server
	creds *credentials
}

func newAPIServer(binary, dir string, etcd *Server, creds *credentials) (*APIServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of an API server: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, auditPolicyFile), []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	a := &APIServer{creds: creds}
	a.Server = &Server{
		name:   "kube-apiserver",
		binary: binary,
		dir:    dir,
		args:   func(port int) []string { return apiServerArgs(dir, port, etcd.Port(), creds) },
		ready:  a.readyz,
	}
	return a, nil
}

func apiServerArgs(dir string, port, etcdPort int, creds *credentials) []string {
	return []string{
		"--etcd-servers=http://" + hostPort(etcdPort),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + dir,
		"--tls-cert-file=" + creds.certFile,
		"--tls-private-key-file=" + creds.keyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + creds.accountKey,
		"--service-account-signing-key-file=" + creds.accountKey,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--token-auth-file=" + creds.tokensFile,
		"--authorization-mode=RBAC",
		// Pods would wait for service accounts, which a controller makes.
		"--disable-admission-plugins=ServiceAccount",
		// A loopback address is no valid endpoint of the kubernetes service.
		"--endpoint-reconciler-type=none",
		// Without it a stop waits a minute for watches that clients hold open.
		"--shutdown-watch-termination-grace-period=1s",
		"--audit-policy-file=" + filepath.Join(dir, auditPolicyFile),
		"--audit-log-path=" + filepath.Join(dir, auditLogFile),
		// AuditEvents relies on it: no request is handled before it is written.
		"--audit-log-mode=blocking-strict",
		// Megabytes. The default, 100, would rotate the log away from a test.
		"--audit-log-maxsize=100000",
	}
}

// Config returns a new client configuration for the admin. It has no client-side
// rate limit, so that tests are as fast as the server.
func (a *APIServer) Config() *rest.Config {
	return a.ConfigFor(AdminUser)
}

// ConfigFor is Config for one of the users AdminUser and LimitedUser. For any
// other name the server answers 401.
func (a *APIServer) ConfigFor(user string) *rest.Config {
	token, known := a.creds.tokens[user]
	if !known {
		token = "unknown-user-" + user
	}
	return &rest.Config{
		Host:            "https://" + hostPort(a.Port()),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.creds.ca()},
		QPS:             -1,
	}
}

// RenewCertificate gives all API servers of the control plane a new serving
// certificate, of a new CA, and waits until this one uses it for new connections.
// Config then has the new CA; clients that were made before do not trust it.
func (a *APIServer) RenewCertificate(ctx context.Context) error {
	if err := a.creds.renew(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = a.readyz(ctx, 0)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the new certificate: %w: %w", err, last)
	}
	return nil
}

// readyz succeeds only on our own server: no other has our certificate and
// takes our token.
func (a *APIServer) readyz(ctx context.Context, _ int) error {
	_, err := a.get(ctx, "/readyz")
	return err
}

// get reads a path that is no resource.
func (a *APIServer) get(ctx context.Context, path string) ([]byte, error) {
	config := a.Config()
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// Metrics come as text; with no Accept the client would ask for JSON.
	return client.Get().AbsPath(path).SetHeader("Accept", "*/*").DoRaw(ctx)
}
