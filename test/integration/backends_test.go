package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/test/integration/process"
)

const (
	bucket    = "weights"
	keyID     = "conformance"
	secretKey = "not-a-secret-of-anybody"
)

// backend is an S3 server under test.
type backend struct {
	url    string
	client *s3conf.Client
	// putParts uploads an object in parts of a size.
	putParts func(t *testing.T, key string, data []byte, partSize int)
}

func client(t *testing.T, url, secret string) *s3conf.Client {
	t.Helper()
	c, err := s3conf.New(t.Context(), s3conf.Options{
		Endpoint: url, Region: "us-east-1", AccessKeyID: keyID, SecretAccessKey: s3conf.Secret(secret), Workers: 32,
	})
	require.NoError(t, err)
	return c
}

// put uploads an object in one request.
func (b *backend) put(t *testing.T, key string, data []byte) {
	t.Helper()
	_, err := b.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: bytes.NewReader(data)})
	require.NoError(t, err)
}

func (b *backend) remove(ctx context.Context, key string) error {
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
	return err
}

// backends starts every server there is.
func backends(t *testing.T) map[string]func(*testing.T) *backend {
	t.Helper()
	return map[string]func(*testing.T) *backend{"InMemory": inMemory, "Versitygw": versitygw}
}

func inMemory(t *testing.T) *backend {
	server := fake.New(fake.Options{Credentials: map[string]string{keyID: secretKey}})
	server.CreateBucket(bucket)
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	return &backend{
		url: ts.URL, client: client(t, ts.URL, secretKey),
		putParts: func(_ *testing.T, key string, data []byte, partSize int) {
			var sizes []int64
			for left := len(data); left > 0; left -= partSize {
				sizes = append(sizes, int64(min(left, partSize)))
			}
			server.PutObject(bucket, key, data, fake.PutOptions{PartSizes: sizes})
		},
	}
}

func versitygw(t *testing.T) *backend {
	binary := os.Getenv("PILOTLIGHT_VERSITYGW")
	if binary == "" {
		t.Skip("PILOTLIGHT_VERSITYGW names no binary: use make integration")
	}
	addr := process.FreeAddress(t)
	process.Start(t, process.Options{
		Path: binary, Args: []string{"--port", addr, "--health", "/health", "posix", t.TempDir()},
		Env:   append(os.Environ(), "ROOT_ACCESS_KEY="+keyID, "ROOT_SECRET_KEY="+secretKey),
		Ready: "http://" + addr + "/health", Within: 20 * time.Second,
	})
	b := &backend{url: "http://" + addr, client: client(t, "http://"+addr, secretKey)}
	b.putParts = b.uploadParts
	_, err := b.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
	require.NoError(t, err)
	return b
}

func (b *backend) uploadParts(t *testing.T, key string, data []byte, partSize int) {
	t.Helper()
	up, err := b.client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: aws.String(bucket), Key: aws.String(key)})
	require.NoError(t, err)
	var parts []types.CompletedPart
	for n := int32(1); len(data) > 0; n++ {
		size := min(partSize, len(data))
		out, err := b.client.UploadPart(t.Context(), &s3.UploadPartInput{
			Bucket: aws.String(bucket), Key: aws.String(key), UploadId: up.UploadId, PartNumber: aws.Int32(n), Body: bytes.NewReader(data[:size]),
		})
		require.NoError(t, err)
		parts = append(parts, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(n)})
		data = data[size:]
	}
	_, err = b.client.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: aws.String(bucket), Key: aws.String(key), UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	require.NoError(t, err, fmt.Sprintf("%d parts", len(parts)))
}
