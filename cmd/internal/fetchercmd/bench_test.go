//go:build unix

package fetchercmd_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fakemlflow "github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
	fakes3 "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// BenchmarkUnchangedPoll is what the agent does at each poll while nothing moves:
// it asks the registry, and compares with what the root publishes. cpu-ms/op is
// of the whole process, the stand-in for MLflow included; the goal is 0.2 ms.
func BenchmarkUnchangedPoll(b *testing.B) {
	models, objects := fakemlflow.New(fakemlflow.Options{}), fakes3.New(fakes3.Options{})
	reg, files := httptest.NewServer(models), httptest.NewServer(objects)
	defer reg.Close()
	defer files.Close()
	for i := range 50 {
		objects.PutObject("weights", fmt.Sprintf("llama/1/%d.bin", i), []byte("x"), fakes3.PutOptions{})
	}
	objects.PutObject("weights", "llama/1/config.json", []byte("{}"), fakes3.PutOptions{})
	_, err := models.CreateVersion("llama", "s3://weights/llama/1")
	require.NoError(b, err)
	require.NoError(b, models.SetAlias("llama", "champion", "1"))
	opts := fetcher.Options{
		Root: filepath.Join(b.TempDir(), "models"),
		Connect: func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
			return s3conf.New(ctx, s3conf.Options{Endpoint: files.URL, AccessKeyID: "id", SecretAccessKey: "not-a-secret"})
		},
	}
	opts.Ref, err = registry.ParseModel("llama@champion")
	require.NoError(b, err)
	opts.Resolver, err = mlflow.New(mlflow.Config{TrackingURI: reg.URL})
	require.NoError(b, err)
	_, err = fetcher.Init(b.Context(), opts)
	require.NoError(b, err)
	store, err := fetcher.OpenStore(opts.Root, nil)
	require.NoError(b, err)
	defer func() { require.NoError(b, store.Close()) }()

	manifests := fetcher.ManifestReader{Store: store}
	b.ReportAllocs()
	before := processCPU(b)
	for b.Loop() {
		p, err := fetcher.Look(b.Context(), opts)
		require.NoError(b, err)
		short, err := store.Current()
		require.NoError(b, err)
		m, err := manifests.Manifest(short)
		require.NoError(b, err)
		require.True(b, m.Means(p))
	}
	b.ReportMetric(float64((processCPU(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

func processCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var use syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
