package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

const (
	keyID  = "AKIDEXAMPLE"
	secret = "not-a-real-secret" //nolint:gosec // a fake server's secret
)

func start(t *testing.T, opts s3.Options) (*s3.Server, string) {
	t.Helper()
	server := s3.New(opts)
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	return server, ts.URL
}

func client(t *testing.T, url, id, key string) *awss3.Client {
	t.Helper()
	c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: url, Region: "us-east-1", AccessKeyID: id, SecretAccessKey: s3conf.Secret(key)})
	require.NoError(t, err)
	return c.Client
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestSignedRequests(t *testing.T) {
	_, url := start(t, s3.Options{Credentials: map[string]string{keyID: secret}})
	keys := []string{
		"plain", "with space", "a+b", "a%2Bb", "ünïcode/Ω", "q?x=1&y", "star*paren()!'", "a//b", "tilde~", "semi;colon:at@", "dot/../dot",
	}
	c := client(t, url, keyID, secret)
	_, err := c.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	for _, key := range keys {
		t.Run(key, func(t *testing.T) {
			_, err := c.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key), Body: strings.NewReader(key)})
			require.NoError(t, err)
			out, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key)})
			require.NoError(t, err)
			got, err := io.ReadAll(out.Body)
			require.NoError(t, err)
			require.NoError(t, out.Body.Close())
			require.Equal(t, key, string(got))
		})
	}
	list, err := c.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	require.Len(t, list.Contents, len(keys))

	refused := map[string]struct{ id, key, want string }{
		"WrongSecret": {keyID, "another", "SignatureDoesNotMatch"},
		"UnknownKey":  {"AKIDNOBODY", secret, "InvalidAccessKeyId"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := client(t, url, tc.id, tc.key).ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: aws.String("bucket")})
			require.Equal(t, tc.want, code(err))
		})
	}
	t.Run("Unsigned", func(t *testing.T) {
		status, body := get(t, url+"/bucket/plain", nil)
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, body, "AccessDenied")
	})
}

func get(t *testing.T, url string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

func TestListPaginationAndDelimiter(t *testing.T) {
	server, url := start(t, s3.Options{MaxKeys: 2})
	for _, key := range []string{"llama/a", "llama/b", "llama/sub/c", "llama/sub/d", "llama/z", "llama-hf/x"} {
		server.PutObject("bucket", key, []byte(key), s3.PutOptions{})
	}
	c := client(t, url, keyID, secret)
	pages := func(in *awss3.ListObjectsV2Input) (keys, prefixes []string, n int) {
		p := awss3.NewListObjectsV2Paginator(c, in)
		for p.HasMorePages() {
			page, err := p.NextPage(t.Context())
			require.NoError(t, err)
			n++
			for _, o := range page.Contents {
				keys = append(keys, aws.ToString(o.Key))
			}
			for _, cp := range page.CommonPrefixes {
				prefixes = append(prefixes, aws.ToString(cp.Prefix))
			}
		}
		return keys, prefixes, n
	}
	keys, _, n := pages(&awss3.ListObjectsV2Input{Bucket: aws.String("bucket"), Prefix: aws.String("llama/")})
	require.Equal(t, []string{"llama/a", "llama/b", "llama/sub/c", "llama/sub/d", "llama/z"}, keys)
	require.Equal(t, 3, n)
	keys, prefixes, _ := pages(&awss3.ListObjectsV2Input{Bucket: aws.String("bucket"), Prefix: aws.String("llama/"), Delimiter: aws.String("/")})
	require.Equal(t, []string{"llama/a", "llama/b", "llama/z"}, keys)
	require.Equal(t, []string{"llama/sub/"}, prefixes)
}

func TestGetObject(t *testing.T) {
	server, url := start(t, s3.Options{})
	etag := server.PutObject("bucket", "key", []byte("0123456789"), s3.PutOptions{})
	tests := map[string]struct {
		header     map[string]string
		wantStatus int
		wantBody   string
	}{
		"Whole":          {wantStatus: 200, wantBody: "0123456789"},
		"Range":          {header: map[string]string{"Range": "bytes=2-4"}, wantStatus: 206, wantBody: "234"},
		"OpenRange":      {header: map[string]string{"Range": "bytes=7-"}, wantStatus: 206, wantBody: "789"},
		"Suffix":         {header: map[string]string{"Range": "bytes=-2"}, wantStatus: 206, wantBody: "89"},
		"BeyondEnd":      {header: map[string]string{"Range": "bytes=8-99"}, wantStatus: 206, wantBody: "89"},
		"Unsatisfiable":  {header: map[string]string{"Range": "bytes=10-"}, wantStatus: 416, wantBody: "InvalidRange"},
		"Match":          {header: map[string]string{"If-Match": `"` + etag + `"`}, wantStatus: 200, wantBody: "0123456789"},
		"Overwritten":    {header: map[string]string{"If-Match": `"other"`}, wantStatus: 412, wantBody: "PreconditionFailed"},
		"RangeOfChanged": {header: map[string]string{"If-Match": `"other"`, "Range": "bytes=0-1"}, wantStatus: 412, wantBody: "PreconditionFailed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			status, body := get(t, url+"/bucket/key", tc.header)
			require.Equal(t, tc.wantStatus, status)
			require.Contains(t, body, tc.wantBody)
		})
	}
	status, body := get(t, url+"/bucket/none", nil)
	require.Equal(t, 404, status)
	require.Contains(t, body, "NoSuchKey")
	status, body = get(t, url+"/nobucket/none", nil)
	require.Equal(t, 404, status)
	require.Contains(t, body, "NoSuchBucket")
}

func TestChecksumIsVerifiedByTheSDK(t *testing.T) {
	server, url := start(t, s3.Options{})
	server.PutObject("bucket", "good", []byte("content"), s3.PutOptions{})
	server.PutObject("bucket", "bad", []byte("content"), s3.PutOptions{Checksum: "AAAAAAAAAAA="})
	c := client(t, url, keyID, secret)
	read := func(key string) error {
		out, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String(key), ChecksumMode: types.ChecksumModeEnabled})
		require.NoError(t, err)
		require.NotEmpty(t, aws.ToString(out.ChecksumCRC64NVME))
		_, err = io.Copy(io.Discard, out.Body)
		return errors.Join(err, out.Body.Close())
	}
	require.NoError(t, read("good"), "our CRC64NVME is the one that AWS's SDK computes")
	require.Error(t, read("bad"))
}

func TestConditionalPutIsCompareAndSet(t *testing.T) {
	server, url := start(t, s3.Options{})
	old := server.PutObject("bucket", "pointer", []byte("v1"), s3.PutOptions{})
	c := client(t, url, keyID, secret)
	put := func(body, match string) error {
		_, err := c.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("pointer"), Body: strings.NewReader(body), IfMatch: aws.String(match)})
		return err
	}
	require.NoError(t, put("v2", old))
	require.Equal(t, "PreconditionFailed", code(put("v3", old)))
}

func TestChunkedUploadIsDecoded(t *testing.T) {
	server, url := start(t, s3.Options{})
	server.CreateBucket("bucket")
	body := "5;chunk-signature=00\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/bucket/key", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
	req.Header.Set("X-Amz-Decoded-Content-Length", "11")
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	_, got := get(t, url+"/bucket/key", nil)
	require.Equal(t, "hello world", got)
}

func TestFaults(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 1000)
	tests := map[string]struct {
		fault   s3.Fault
		wantErr bool
		wantLen int
		reason  string
	}{
		"None":  {wantLen: 1000, reason: "the zero fault changes nothing"},
		"Reset": {fault: s3.Fault{Break: s3.BreakReset, After: 100}, wantErr: true, wantLen: 100, reason: "the announced length is missed"},
		"Short": {fault: s3.Fault{Break: s3.BreakShort, After: 100}, wantLen: 100, reason: "only a comparison with the listing finds it"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server, url := start(t, s3.Options{Fault: func(*http.Request) s3.Fault { return tc.fault }})
			server.PutObject("bucket", "key", data, s3.PutOptions{})
			out, err := client(t, url, keyID, secret).GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
			require.NoError(t, err)
			got, err := io.ReadAll(out.Body)
			require.Equal(t, tc.wantErr, err != nil, tc.reason)
			require.Len(t, got, tc.wantLen)
			require.NoError(t, out.Body.Close())
		})
	}
	t.Run("Stall", func(t *testing.T) {
		server, url := start(t, s3.Options{Fault: func(*http.Request) s3.Fault { return s3.Fault{Break: s3.BreakStall, After: 10} }})
		server.PutObject("bucket", "key", data, s3.PutOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		out, err := client(t, url, keyID, secret).GetObject(ctx, &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
		require.NoError(t, err)
		_, err = io.ReadFull(out.Body, make([]byte, 10))
		require.NoError(t, err)
		cancel()
		_, err = io.ReadAll(out.Body)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, out.Body.Close())
	})
}

func TestBuckets(t *testing.T) {
	server, url := start(t, s3.Options{})
	server.CreateBucket("one")
	c := client(t, url, keyID, secret)
	list, err := c.ListBuckets(t.Context(), &awss3.ListBucketsInput{})
	require.NoError(t, err)
	require.Equal(t, "one", aws.ToString(list.Buckets[0].Name))
	_, err = c.HeadBucket(t.Context(), &awss3.HeadBucketInput{Bucket: aws.String("one")})
	require.NoError(t, err)
	_, err = c.HeadBucket(t.Context(), &awss3.HeadBucketInput{Bucket: aws.String("two")})
	require.Equal(t, "NotFound", code(err))
	loc, err := c.GetBucketLocation(t.Context(), &awss3.GetBucketLocationInput{Bucket: aws.String("one")})
	require.NoError(t, err)
	require.Empty(t, loc.LocationConstraint, "us-east-1 is written as nothing")
	server.PutObject("one", "key", []byte("x"), s3.PutOptions{})
	_, err = c.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String("one"), Key: aws.String("key")})
	require.NoError(t, err)
	_, err = c.HeadObject(t.Context(), &awss3.HeadObjectInput{Bucket: aws.String("one"), Key: aws.String("key")})
	require.Equal(t, "NotFound", code(err))
	require.Equal(t, 1, server.Count("DeleteObject"))
}

func TestMultipartETag(t *testing.T) {
	server := s3.New(s3.Options{})
	etag := server.PutObject("bucket", "key", bytes.Repeat([]byte("x"), 100), s3.PutOptions{MultipartParts: 3})
	require.Regexp(t, `^[0-9a-f]{32}-3$`, etag)
}

func TestUploadsInParts(t *testing.T) {
	data := []byte("0123456789")
	server, url := start(t, s3.Options{})
	server.PutObject("bucket", "key", data, s3.PutOptions{PartSizes: []int64{4, 4, 2}, Algorithm: "crc32c", Composite: true})
	c := client(t, url, keyID, secret)
	head, err := c.HeadObject(t.Context(), &awss3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key"), ChecksumMode: types.ChecksumModeEnabled})
	require.NoError(t, err)
	require.Equal(t, types.ChecksumTypeComposite, head.ChecksumType)
	require.Regexp(t, `-3$`, aws.ToString(head.ChecksumCRC32C))
	attributes, err := c.GetObjectAttributes(t.Context(), &awss3.GetObjectAttributesInput{
		Bucket: aws.String("bucket"), Key: aws.String("key"), ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts},
	})
	require.NoError(t, err)
	var sizes []int64
	for _, p := range attributes.ObjectParts.Parts {
		sizes = append(sizes, aws.ToInt64(p.Size))
	}
	require.Equal(t, []int64{4, 4, 2}, sizes)
	part, err := c.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key"), PartNumber: aws.Int32(3)})
	require.NoError(t, err)
	got, err := io.ReadAll(part.Body)
	require.NoError(t, err)
	require.NoError(t, part.Body.Close())
	require.Equal(t, "89", string(got))
	require.EqualValues(t, 3, aws.ToInt32(part.PartsCount))
}

func TestFaultsThatMislabel(t *testing.T) {
	var fault s3.Fault
	server, url := start(t, s3.Options{Fault: func(*http.Request) s3.Fault { return fault }})
	server.PutObject("bucket", "key", []byte("0123456789"), s3.PutOptions{})
	ranged := map[string]string{"Range": "bytes=2-4"}
	fault = s3.Fault{IgnoreRange: true}
	status, body := get(t, url+"/bucket/key", ranged)
	require.Equal(t, 200, status)
	require.Equal(t, "0123456789", body)
	fault = s3.Fault{ErrorBody: true}
	status, body = get(t, url+"/bucket/key", ranged)
	require.Equal(t, 200, status)
	require.Contains(t, body, "<Error>")
	fault = s3.Fault{}
	ranged["X-Amz-Checksum-Mode"] = "ENABLED"
	status, _ = get(t, url+"/bucket/key", ranged)
	require.Equal(t, 206, status)
	server, url = start(t, s3.Options{R2: true})
	server.PutObject("bucket", "key", []byte("0123456789"), s3.PutOptions{})
	status, _ = get(t, url+"/bucket/key", ranged)
	require.Equal(t, 501, status, "R2 refuses a checksum with a range")
}
