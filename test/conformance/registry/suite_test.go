package registryconformance_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry/objectpointer"
	suite "github.com/pilotlight-dev/pilotlight/test/conformance/registry"
)

func TestMLflow(t *testing.T) {
	server := fakemlflow.New(fakemlflow.Options{})
	ts := httptest.NewServer(server)
	defer ts.Close()
	source := func(name, version string) registry.Location {
		return registry.Location{Scheme: "s3", Bucket: "weights", Prefix: name + "/" + version}
	}
	alias := func(name string) registry.Ref {
		return registry.Ref{Kind: registry.KindAlias, Name: name, Selector: "chämpion"}
	}
	suite.Run(t, suite.Backend{
		Client: func(t *testing.T) suite.Pointer {
			t.Helper()
			c, err := mlflow.New(mlflow.Config{TrackingURI: ts.URL, RetryBase: time.Millisecond})
			require.NoError(t, err)
			return c
		},
		Make: func(t *testing.T, name string, n int) registry.Ref {
			t.Helper()
			for i := range n {
				_, err := server.CreateVersion(name, source(name, fmt.Sprint(i+1)).String())
				require.NoError(t, err)
			}
			require.NoError(t, server.SetAlias(name, alias(name).Selector, "1"))
			return alias(name)
		},
		Missing: func(_ *testing.T, name string) registry.Ref { return alias(name) },
		Dangle: func(t *testing.T, ref registry.Ref) {
			t.Helper()
			require.NoError(t, server.DeleteVersion(ref.Name, "1"))
		},
		Describe: func(ref registry.Ref, version string) (registry.Location, string) {
			return source(ref.Name, version), ""
		},
		MaxHistory: 20, AtMost: 40,
	})
}

func TestObjectPointer(t *testing.T) {
	store := fakes3.New(fakes3.Options{Credentials: map[string]string{keyID: secretKey}})
	ts := httptest.NewServer(store)
	defer ts.Close()
	runObjectPointer(t, ts.URL)
}

// An independent S3 server: what the pointers believe of conditional writes must
// hold there too, or the store in memory is a mirror of our own mistakes.
func TestObjectPointerOnVersitygw(t *testing.T) {
	binary := os.Getenv("PILOTLIGHT_VERSITYGW")
	if binary == "" {
		t.Skip("PILOTLIGHT_VERSITYGW names no binary: make integration builds one")
	}
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "--port", addr, "posix", t.TempDir()) //nolint:gosec // the Makefile's binary
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+keyID, "ROOT_SECRET_KEY="+secretKey)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no state to save
		_ = cmd.Wait()         // killed: its error says so
		if t.Failed() {
			t.Log(log.String())
		}
	})
	runObjectPointer(t, "http://"+addr)
}

const (
	keyID     = "conformance"
	secretKey = "not-a-secret-of-anybody"
)

// runObjectPointer runs the suite on a store, which may be starting up.
func runObjectPointer(t *testing.T, url string) {
	t.Helper()
	const bucket = "pointers"
	newS3 := func(t *testing.T) *s3conf.Client {
		t.Helper()
		c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: url, Region: "us-east-1", AccessKeyID: keyID, SecretAccessKey: secretKey})
		require.NoError(t, err)
		return c
	}
	setup := newS3(t)
	require.Eventually(t, func() bool {
		_, err := setup.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
		return err == nil
	}, 20*time.Second, 50*time.Millisecond, "the store does not answer")
	at := func(name string) registry.Ref {
		return registry.Ref{Kind: registry.KindPointer, Location: registry.Location{Scheme: "s3", Bucket: bucket, Prefix: name + "/live"}}
	}
	describe := func(ref registry.Ref, version string) (registry.Location, string) {
		sum := sha256.Sum256([]byte(version))
		return registry.Location{Scheme: "s3", Bucket: "weights", Prefix: ref.Location.Prefix + "/" + version}, hex.EncodeToString(sum[:])
	}
	client := func(t *testing.T) *objectpointer.Client {
		t.Helper()
		return objectpointer.New(newS3(t), objectpointer.Options{RequireConditions: true})
	}
	suite.Run(t, suite.Backend{
		Client: func(t *testing.T) suite.Pointer { t.Helper(); return client(t) },
		Make: func(t *testing.T, name string, _ int) registry.Ref {
			t.Helper()
			ref := at(name)
			loc, digest := describe(ref, "1")
			_, err := client(t).Init(t.Context(), ref, registry.Change{To: "1", Location: loc, Digest: digest, By: "setup"})
			require.NoError(t, err)
			return ref
		},
		Missing: func(_ *testing.T, name string) registry.Ref { return at(name) },
		Dangle: func(t *testing.T, ref registry.Ref) {
			t.Helper()
			_, err := setup.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String(bucket), Key: aws.String(ref.Location.Prefix), Body: strings.NewReader(`{"v":1,"version":"1","location":"gs://elsewhere/x"}`),
			})
			require.NoError(t, err)
		},
		Describe: describe,
		Exact:    true, MaxHistory: objectpointer.MaxHistory, AtMost: objectpointer.MaxHistory,
	})
}
