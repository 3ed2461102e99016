package mlflow

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// chooseCredentials completes user and password: those of the configuration
// come first, then those of the URI, then those of the credentials file. As in
// MLflow's client, a user and a password may come from different places.
func (cfg *Config) chooseCredentials(inURI *url.Userinfo) error {
	if cfg.Username == "" && inURI != nil {
		password, _ := inURI.Password()
		cfg.Username, cfg.Password = inURI.Username(), Secret(password)
	}
	if cfg.Username != "" && cfg.Password != "" {
		return nil
	}
	user, password, err := readCredentials(cfg.CredentialsFile)
	if err != nil {
		return err
	}
	if cfg.Username == "" {
		cfg.Username = user
	}
	if cfg.Password == "" {
		cfg.Password = password
	}
	return nil
}

// readCredentials reads MLflow's INI file. Nothing of what it holds goes into
// an error.
func readCredentials(path string) (user string, password Secret, err error) {
	if path == "" {
		return "", "", nil
	}
	file, err := os.Open(path) //nolint:gosec // the path is the user's own
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: reading MLflow's credentials: %w", ErrConfig, err)
	}
	const limit = 64 << 10
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return "", "", fmt.Errorf("%w: reading MLflow's credentials: %w", ErrConfig, err)
	}
	if len(data) > limit {
		return "", "", fmt.Errorf("%w: %s is larger than %d KiB: want an INI file with a section [mlflow]", ErrConfig, path, limit>>10)
	}
	values := iniSection(data, "mlflow")
	return values["mlflow_tracking_username"], Secret(values["mlflow_tracking_password"]), nil
}

// iniSection returns the keys, in lower case, of one section of an INI file:
// key = value or key: value, comments on lines of their own.
func iniSection(data []byte, section string) map[string]string {
	values := map[string]string{}
	inside := false
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			inside = line == "["+section+"]"
		case inside:
			if i := strings.IndexAny(line, "=:"); i > 0 {
				values[strings.ToLower(strings.TrimSpace(line[:i]))] = strings.TrimSpace(line[i+1:])
			}
		}
	}
	return values
}

// authorize adds the headers of every request. Basic authentication needs both
// of its halves and beats the token; a signature beats both.
func (c *Client) authorize(req *http.Request, payload []byte) error {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "pilotlight")
	switch {
	case c.signer != nil: // below, when all headers are there
	case c.cfg.Username != "" && c.cfg.Password != "":
		req.SetBasicAuth(c.cfg.Username, string(c.cfg.Password))
	case c.cfg.Token != "":
		req.Header.Set("Authorization", "Bearer "+string(c.cfg.Token))
	}
	if c.cfg.Workspace != "" {
		req.Header.Set("X-MLFLOW-WORKSPACE", c.cfg.Workspace)
	}
	if c.signer == nil {
		return nil
	}
	return c.signer.sign(req, payload)
}

// sigV4Service is what an API Gateway in front of MLflow expects to be signed.
const sigV4Service = "execute-api"

// signer signs requests with AWS's Signature Version 4.
type signer struct {
	v4  *v4.Signer
	now func() time.Time

	mu          sync.Mutex
	credentials aws.CredentialsProvider // nil until the chain was asked
	region      string
}

func newSigner(cfg Config, now func() time.Time) *signer {
	s := &signer{v4: v4.NewSigner(), now: now, region: cfg.AWSRegion}
	if cfg.AWSCredentials != nil {
		s.credentials = cfg.AWSCredentials
	}
	return s
}

func (s *signer) sign(req *http.Request, payload []byte) error {
	provider, region, err := s.load(req.Context())
	if err != nil {
		return err
	}
	creds, err := provider.Retrieve(req.Context())
	if err != nil {
		return fmt.Errorf("%w: MLFLOW_TRACKING_AWS_SIGV4 is set, but there are no AWS credentials: %w", registry.ErrDenied, err)
	}
	sum := sha256.Sum256(payload)
	if err := s.v4.SignHTTP(req.Context(), creds, req, hex.EncodeToString(sum[:]), sigV4Service, region, s.now()); err != nil {
		return fmt.Errorf("%w: signing the request: %w", registry.ErrDenied, err)
	}
	return nil
}

// load asks the AWS default chain once. Waiting callers share the answer; a
// failure is asked again.
func (s *signer) load(ctx context.Context) (aws.CredentialsProvider, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.credentials != nil && s.region != "" {
		return s.credentials, s.region, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, "", fmt.Errorf("%w: loading the AWS configuration for MLFLOW_TRACKING_AWS_SIGV4: %w", registry.ErrDenied, err)
	}
	if s.credentials == nil {
		s.credentials = cfg.Credentials
	}
	if s.region == "" {
		s.region = cfg.Region
	}
	if s.region == "" {
		return nil, "", fmt.Errorf("%w: MLFLOW_TRACKING_AWS_SIGV4 is set, but no region: set AWS_REGION", registry.ErrDenied)
	}
	return s.credentials, s.region, nil
}
