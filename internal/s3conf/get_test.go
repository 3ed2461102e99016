package s3conf_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

const (
	testID  = "id"
	testKey = "not-a-secret"
)

func newClient(t *testing.T, opts fake.Options, endpoint func(*s3conf.Options)) (*fake.Server, *s3conf.Client) {
	t.Helper()
	server := fake.New(opts)
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	conf := s3conf.Options{Endpoint: ts.URL, Region: "us-east-1", AccessKeyID: testID, SecretAccessKey: testKey}
	if endpoint != nil {
		endpoint(&conf)
	}
	c, err := s3conf.New(t.Context(), conf)
	require.NoError(t, err)
	return server, c
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(data)
}

func TestAShortGetIsSignedOverTheRawKey(t *testing.T) {
	server, c := newClient(t, fake.Options{Credentials: map[string]string{testID: testKey}}, nil)
	for _, key := range []string{"plain", "a b", "plus+plus", "per%2Fcent", "com,ma?#&=;", "~ü/日本/🔥", "(')*!$:@[]"} {
		server.PutObject("bucket", key, []byte(key), fake.PutOptions{})
		resp, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: key, Checksums: true})
		require.NoError(t, err, key)
		require.Equal(t, key, read(t, resp))
		require.NotEmpty(t, resp.Header.Get("X-Amz-Checksum-Crc64nvme"))
	}
	resp, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "plain", Range: "bytes=1-2"})
	require.NoError(t, err)
	require.Equal(t, http.StatusPartialContent, resp.StatusCode)
	require.Equal(t, "la", read(t, resp))
}

func TestAShortGetFailsAsTheSDKWould(t *testing.T) {
	tests := map[string]struct {
		fault fake.Fault
		get   s3conf.Get
		code  string
	}{
		"NoKey":       {fake.Fault{}, s3conf.Get{Key: "none"}, "NoSuchKey"},
		"Overwritten": {fake.Fault{}, s3conf.Get{Key: "key", IfMatch: `"other"`}, "PreconditionFailed"},
		"SlowDown":    {fake.Fault{Status: 503}, s3conf.Get{Key: "key"}, "SlowDown"},
		"Denied":      {fake.Fault{Status: 403}, s3conf.Get{Key: "key"}, "AccessDenied"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server, c := newClient(t, fake.Options{Fault: func(*http.Request) fake.Fault { return tc.fault }}, nil)
			server.PutObject("bucket", "key", []byte("x"), fake.PutOptions{})
			tc.get.Bucket = "bucket"
			_, err := c.Do(t.Context(), tc.get) //nolint:bodyclose // there is none
			var api smithy.APIError
			require.ErrorAs(t, err, &api)
			require.Equal(t, tc.code, api.ErrorCode())
			require.NotContains(t, err.Error(), testKey)
		})
	}
}

func TestAnAnswerThatIsNotS3sIsStillAnError(t *testing.T) {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>proxy", http.StatusBadGateway) }))
	t.Cleanup(ts.Close)
	c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, AccessKeyID: testID, SecretAccessKey: testKey})
	require.NoError(t, err)
	_, err = c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"}) //nolint:bodyclose // there is none
	var api smithy.APIError
	require.ErrorAs(t, err, &api)
	require.Equal(t, "BadGateway", api.ErrorCode())
}

func TestAnonymousGetsAreNotSigned(t *testing.T) {
	var signed atomic.Bool
	server, c := newClient(t, fake.Options{Fault: func(r *http.Request) fake.Fault {
		signed.Store(r.Header.Get("Authorization") != "")
		return fake.Fault{}
	}}, func(o *s3conf.Options) { o.Anonymous = true })
	server.PutObject("bucket", "key", []byte("x"), fake.PutOptions{})
	resp, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"})
	require.NoError(t, err)
	require.Equal(t, "x", read(t, resp))
	require.False(t, signed.Load())
}

func TestWhatTheShortGetCannotDoIsLeftToTheSDK(t *testing.T) {
	_, c := newClient(t, fake.Options{}, nil)
	for _, bucket := range []string{"arn:aws:s3:us-east-1:123456789012:accesspoint/x", "name--use1-az4--x-s3"} {
		_, err := c.Do(t.Context(), s3conf.Get{Bucket: bucket, Key: "key"}) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestAWrongClockIsLeftToTheSDK(t *testing.T) {
	server, c := newClient(t, fake.Options{
		Credentials: map[string]string{testID: testKey},
		Now:         func() time.Time { return time.Now().Add(time.Hour) },
	}, nil)
	server.PutObject("bucket", "key", []byte("x"), fake.PutOptions{})
	for range 2 {
		_, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"}) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	require.Equal(t, 1, server.Count("GetObject"), "asked once")
}

func TestExpiredCredentialsAreAskedForAgain(t *testing.T) {
	// A credential service whose second answer is the valid one.
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		token := map[bool]string{true: "old", false: "new"}[asked.Add(1) == 1]
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"AccessKeyId":"id","SecretAccessKey":"not-a-secret","Token":"`+token+`","Expiration":"2099-01-01T00:00:00Z"}`)
	}))
	t.Cleanup(service.Close)
	for name, value := range map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.URL, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
	} {
		t.Setenv(name, value)
	}
	server, c := newClient(t, fake.Options{Fault: func(r *http.Request) fake.Fault {
		if r.Header.Get("X-Amz-Security-Token") == "old" {
			return fake.Fault{Status: 400, Code: "ExpiredToken"}
		}
		return fake.Fault{}
	}}, func(o *s3conf.Options) { o.AccessKeyID, o.SecretAccessKey = "", "" })
	server.PutObject("bucket", "key", []byte("x"), fake.PutOptions{})
	_, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"}) //nolint:bodyclose // there is none
	require.True(t, s3conf.IsExpired(err))
	resp, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"})
	require.NoError(t, err)
	require.Equal(t, "x", read(t, resp))
	require.EqualValues(t, 2, asked.Load())
}

// A redirect to another host is not followed: the customer's key would go with it.
func TestNothingGoesToAnotherHost(t *testing.T) {
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	var moved atomic.Int32
	store := fake.New(fake.Options{})
	store.PutObject("bucket", "key", []byte("data"), fake.PutOptions{})
	for name, to := range map[string]func(own string) string{
		"ToAnother": func(string) string { return other.URL },
		"ToItself":  func(own string) string { return own },
	} {
		t.Run(name, func(t *testing.T) {
			moved.Store(0)
			var own string
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if moved.Add(1) == 1 || name == "ToAnother" {
					http.Redirect(w, r, to(own)+r.URL.RequestURI(), http.StatusTemporaryRedirect)
					return
				}
				store.ServeHTTP(w, r)
			}))
			t.Cleanup(ts.Close)
			own = ts.URL
			conf := s3conf.Options{Endpoint: ts.URL, AccessKeyID: testID, SecretAccessKey: testKey}
			if name == "ToAnother" {
				conf.CustomerKey = "0123456789abcdef0123456789abcdef"
			}
			c, err := s3conf.New(t.Context(), conf)
			require.NoError(t, err)
			resp, err := c.Do(t.Context(), s3conf.Get{Bucket: "bucket", Key: "key"})
			if name == "ToItself" {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return
			}
			require.ErrorIs(t, err, s3conf.ErrElsewhere)
			require.ErrorContains(t, err, other.Listener.Addr().String(), "it is named")
			_, err = c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
			require.ErrorIs(t, err, s3conf.ErrElsewhere)
			require.Zero(t, reached.Load())
		})
	}
}
