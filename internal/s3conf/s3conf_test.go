package s3conf_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

func TestFromEnv(t *testing.T) {
	tests := map[string]struct {
		env          map[string]string
		wantEndpoint string
		wantErr      string
	}{
		"MLflowFirst": {env: map[string]string{"MLFLOW_S3_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_ENDPOINT_URL": "http://c"}, wantEndpoint: "http://a"},
		"S3Next":      {env: map[string]string{"AWS_ENDPOINT_URL_S3": "http://b", "AWS_ENDPOINT_URL": "http://c"}, wantEndpoint: "http://b"},
		"AWSLast":     {env: map[string]string{"AWS_ENDPOINT_URL": "http://c"}, wantEndpoint: "http://c"},
		"None":        {},
		"BadBool":     {env: map[string]string{"MLFLOW_S3_IGNORE_TLS": "perhaps"}, wantErr: "MLFLOW_S3_IGNORE_TLS"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			opts, err := s3conf.FromEnv(func(k string) string { return tc.env[k] })
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.wantEndpoint, opts.Endpoint)
		})
	}
}

func TestValidateEndpoint(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": true, "http://minio:9000": true, "https://s3.example/": true,
		"minio:9000": false, "ftp://x": false, "http://user:hunter2@x": false, "http://x/bucket": false, "http://x?y=hunter2": false, "http://a b:hunter2": false,
	} {
		err := s3conf.Options{Endpoint: endpoint}.Validate()
		if ok {
			require.NoError(t, err, endpoint)
			continue
		}
		require.ErrorIs(t, err, s3conf.ErrEndpoint, endpoint)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	opts := s3conf.Options{SecretAccessKey: "hunter2", SessionToken: "hunter2"}
	text, err := json.Marshal(opts) //nolint:gosec // that it hides secrets is the test
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", opts, opts, opts, text), "hunter2")
}

func TestRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	for name, tc := range map[string]struct {
		opts s3conf.Options
		want string
	}{
		"Default":  {s3conf.Options{}, "us-east-1"},
		"Explicit": {s3conf.Options{Region: "eu-west-1"}, "eu-west-1"},
		"R2":       {s3conf.Options{Endpoint: "https://acc.r2.cloudflarestorage.com"}, "auto"},
		"R2OnAWS":  {s3conf.Options{Endpoint: "https://acc.r2.cloudflarestorage.com", Region: "eu-west-1"}, "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := s3conf.New(t.Context(), tc.opts)
			require.NoError(t, err)
			require.Equal(t, tc.want, c.Options().Region)
		})
	}
}

// seen records the requests that reach the store.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (s *seen) record(r *http.Request) fake.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return fake.Fault{}
}

func TestRequestsOnTheWire(t *testing.T) {
	var log seen
	store := fake.New(fake.Options{Fault: log.record})
	store.PutObject("bucket", "key", []byte("x"), fake.PutOptions{})
	ts := httptest.NewUnstartedServer(store)
	ts.EnableHTTP2 = true
	ts.StartTLS()
	defer ts.Close()
	c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, IgnoreTLS: true, AccessKeyID: "id", SecretAccessKey: "secret"})
	require.NoError(t, err)
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
	require.NoError(t, err)
	require.NoError(t, out.Body.Close())
	r := log.requests[0]
	require.Equal(t, 1, r.ProtoMajor, "HTTP/2 is not used even where it is offered")
	require.Equal(t, "/bucket/key", r.URL.Path, "path style for a named endpoint")
	require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
	require.Empty(t, r.Header.Get("X-Amz-Checksum-Mode"), "no checksums that were not asked for")
}

func TestAnonymousRequestsAreUnsigned(t *testing.T) {
	var log seen
	store := fake.New(fake.Options{Fault: log.record})
	store.CreateBucket("bucket")
	ts := httptest.NewServer(store)
	defer ts.Close()
	c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, Anonymous: true})
	require.NoError(t, err)
	_, err = c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	require.Empty(t, log.requests[0].Header.Get("Authorization"))
}

func TestExpiredCredentialsAndThrottlingAreRepeated(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"Expired":   {Status: http.StatusBadRequest, Code: "ExpiredToken"},
		"Throttled": {Status: http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			store := fake.New(fake.Options{Fault: func(*http.Request) fake.Fault {
				calls++
				if calls == 1 {
					return fault
				}
				return fake.Fault{}
			}})
			store.CreateBucket("bucket")
			ts := httptest.NewServer(store)
			defer ts.Close()
			c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, AccessKeyID: "id", SecretAccessKey: "secret"})
			require.NoError(t, err)
			_, err = c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("bucket")})
			require.NoError(t, err)
			require.Equal(t, 2, calls)
		})
	}
}

func TestIsExpired(t *testing.T) {
	require.False(t, s3conf.IsExpired(http.ErrAbortHandler))
}

func TestFromEnvReadsWhatMLflowsAndAWSUsersSet(t *testing.T) {
	key := strings.Repeat("k", 32)
	env := map[string]string{
		"MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE": "virtual", "MLFLOW_S3_EXPECTED_BUCKET_OWNER": "1234", "MLFLOW_S3_IGNORE_TLS": "true",
		"MLFLOW_EXPERIMENTAL_S3_SIGNATURE_VERSION": "UNSIGNED", "AWS_CA_BUNDLE": "/ca.pem", "https_proxy": "http://proxy:1", "NO_PROXY": "a,b",
		"PILOTLIGHT_S3_REQUESTER_PAYS": "1", "PILOTLIGHT_SSE_C_KEY": base64.StdEncoding.EncodeToString([]byte(key)) + "\n",
	}
	opts, err := s3conf.FromEnv(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.NoError(t, opts.Validate())
	require.Equal(t, s3conf.AddressingVirtual, opts.Addressing)
	require.Equal(t, "1234", opts.BucketOwner)
	require.True(t, opts.IgnoreTLS && opts.Anonymous && opts.RequesterPays)
	require.Equal(t, "/ca.pem", opts.CABundle)
	require.Equal(t, "http://proxy:1", opts.Proxy.HTTPSProxy)
	require.Equal(t, "a,b", opts.Proxy.NoProxy)
	require.Equal(t, key, string(opts.CustomerKey))
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", opts, opts, opts), key)
}

func TestSettingsThatCannotBe(t *testing.T) {
	key := s3conf.Secret(strings.Repeat("k", 32))
	for words, opts := range map[string]s3conf.Options{
		"want auto, path or virtual": {Addressing: "sideways"},
		"has 7 bytes":                {CustomerKey: "hunter2"},
		"in the clear":               {CustomerKey: key, Endpoint: "http://s3.example"},
	} {
		err := opts.Validate()
		require.ErrorIs(t, err, s3conf.ErrConfig)
		require.ErrorContains(t, err, words)
	}
	require.NoError(t, s3conf.Options{CustomerKey: key, Endpoint: "http://127.0.0.1:9000"}.Validate())
	_, err := s3conf.ParseCustomerKey([]byte("hunter2"))
	require.ErrorIs(t, err, s3conf.ErrConfig)
	require.NotContains(t, err.Error(), "hunter2")
	raw, err := s3conf.ParseCustomerKey([]byte(key))
	require.NoError(t, err)
	require.Equal(t, key, raw)
	junk := filepath.Join(t.TempDir(), "junk.pem")
	require.NoError(t, os.WriteFile(junk, []byte("no certificate"), 0o600))
	_, err = s3conf.New(t.Context(), s3conf.Options{CABundle: junk})
	require.ErrorIs(t, err, s3conf.ErrConfig)
	require.ErrorContains(t, err, "holds no PEM certificate")
}
