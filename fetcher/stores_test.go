package fetcher_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http/httpproxy"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// storeOf is a world around a store with these manners.
func storeOf(t *testing.T, opts fake.Options) *world {
	t.Helper()
	store := fake.New(opts)
	store.CreateBucket(bucket)
	return newWorldOn(t, store)
}

// rangedWith is w.ranged with a client that change adjusts.
func (w *world) rangedWith(change func(*s3conf.Options)) fetcher.Options {
	opts := w.ranged()
	opts.Connect = func(ctx context.Context, _ registry.Location) (fetcher.S3API, error) {
		conf := s3conf.Options{Endpoint: w.url, Region: "us-east-1", AccessKeyID: "id", SecretAccessKey: "secret"}
		change(&conf)
		return s3conf.New(ctx, conf)
	}
	return opts
}

var customerKey = strings.Repeat("k", 31) + "\xff"

func TestObjectsUnderACustomersKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, data := range shards("one") {
		w.store.PutObject(bucket, "llama/1/"+name, data, fake.PutOptions{CustomerKey: []byte(customerKey)})
	}
	w.point("llama/1")
	var said bytes.Buffer
	with := func(key string) error {
		opts := w.rangedWith(func(o *s3conf.Options) { o.CustomerKey = s3conf.Secret(key) })
		opts.Logger = textLogger(&said)
		_, err := fetcher.Init(t.Context(), opts)
		return err
	}
	for name, wrong := range map[string]string{"without": "", "another": strings.Repeat("x", 32)} {
		err := with(wrong)
		require.ErrorIs(t, err, fetcher.ErrStoreDenied, name)
		require.NotContains(t, err.Error(), strings.Repeat("x", 32))
		require.NoDirExists(t, filepath.Join(w.root, "current"))
	}
	require.NoError(t, with(customerKey))
	w.requireCurrent(shards("one"))
	require.NotContains(t, said.String(), customerKey)
}

func TestABucketWhoseReadersPay(t *testing.T) {
	t.Parallel()
	w := storeOf(t, fake.Options{RequesterPays: true, Owner: "111122223333"})
	w.put("llama/1", shards("one"))
	_, err := fetcher.Init(t.Context(), w.ranged())
	require.ErrorIs(t, err, fetcher.ErrStoreDenied)
	_, err = fetcher.Init(t.Context(), w.rangedWith(func(o *s3conf.Options) { o.RequesterPays, o.BucketOwner = true, "999" }))
	require.ErrorIs(t, err, fetcher.ErrStoreDenied, "the bucket is another account's")
	_, err = fetcher.Init(t.Context(), w.rangedWith(func(o *s3conf.Options) { o.RequesterPays, o.BucketOwner = true, "111122223333" }))
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
}

func TestACertificateAuthorityOfOnesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	ts := httptest.NewUnstartedServer(w.store)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	ts.StartTLS()
	t.Cleanup(ts.Close)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw}), 0o600))
	trusting := func(file string) error {
		opts := w.rangedWith(func(o *s3conf.Options) { o.Endpoint, o.CABundle = ts.URL, file })
		opts.Deadline = deadlineOfHopeless
		if file == bundle {
			opts.Deadline = 0
		}
		_, err := fetcher.Init(t.Context(), opts)
		return err
	}
	require.ErrorIs(t, trusting(""), fetcher.ErrStoreUnreachable)
	require.ErrorIs(t, trusting(filepath.Join(t.TempDir(), "none.pem")), s3conf.ErrConfig)
	require.NoError(t, trusting(bundle))
	w.requireCurrent(shards("one"))
}

// TestBucketsInHostNamesThroughAProxy reaches a store whose name only the proxy
// can resolve, with the bucket in the host's name.
func TestBucketsInHostNamesThroughAProxy(t *testing.T) {
	t.Parallel()
	w := storeOf(t, fake.Options{Domain: "store.example", Credentials: map[string]string{"id": "secret"}})
	w.put("llama/1", shards("one"))
	var mu sync.Mutex
	hosts := map[string]int{}
	w.store.SetFault(func(r *http.Request) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		hosts[r.Host]++
		return fake.Fault{}
	})
	_, err := fetcher.Init(t.Context(), w.rangedWith(func(o *s3conf.Options) {
		o.Endpoint, o.Addressing = "http://store.example", s3conf.AddressingVirtual
		o.Proxy = httpproxy.Config{HTTPProxy: w.url}
	}))
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
	require.Len(t, hosts, 1)
	require.NotZero(t, hosts[bucket+".store.example"])
}

func TestAStoreThatNoProxyNamesIsReachedDirectly(t *testing.T) {
	t.Parallel()
	proxied := httpproxy.Config{HTTPProxy: "http://127.0.0.1:1", NoProxy: "direct.example"}
	via, err := proxied.ProxyFunc()(&url.URL{Scheme: "http", Host: "direct.example"})
	require.NoError(t, err)
	require.Nil(t, via)
	w := newWorld(t) // loopback is never proxied
	w.put("llama/1", model("one"))
	_, err = fetcher.Init(t.Context(), w.rangedWith(func(o *s3conf.Options) { o.Proxy = proxied }))
	require.NoError(t, err)
}

// TestGooglesStore has hashes of its own, and a front end that changes
// Accept-Encoding under a signature.
func TestGooglesStore(t *testing.T) {
	t.Parallel()
	w := storeOf(t, fake.Options{Google: true, Credentials: map[string]string{"id": "secret"}})
	for name, data := range shards("one") { // as uploaded in parts: the ETag says nothing
		w.store.PutObject(bucket, "llama/1/"+name, data, fake.PutOptions{PartSizes: []int64{int64(len(data))}})
	}
	w.point("llama/1")
	res, err := fetcher.Init(t.Context(), w.ranged())
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
	for _, o := range res.Manifest.Objects {
		if o.Size > 0 {
			require.True(t, strings.HasPrefix(o.Checksum, "crc32c:"), "%s has %q", o.Path, o.Checksum)
		}
	}
	w.store.SetFault(onGets(fake.Fault{Corrupt: true}))
	require.NoError(t, os.RemoveAll(w.root))
	_, err = fetcher.Init(t.Context(), w.ranged())
	require.ErrorIs(t, err, fetcher.ErrIntegrity)
	require.ErrorContains(t, err, "crc32c")
}

// TestContentThatWasStoredPackedArrivesAsStored: a Content-Encoding says what the
// bytes are, and nothing unpacks them on the way.
func TestContentThatWasStoredPackedArrivesAsStored(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"gzip", "br"} {
		w := newWorld(t)
		w.put("llama/1", shards("one"))
		w.store.PutObject(bucket, "llama/1/vocab.json.gz", []byte("\x1f\x8bpacked"), fake.PutOptions{ContentEncoding: encoding})
		_, err := fetcher.Init(t.Context(), w.ranged())
		require.NoError(t, err)
		want := shards("one")
		want["vocab.json.gz"] = []byte("\x1f\x8bpacked")
		w.requireCurrent(want)
	}
}

func TestContentThatIsUnpackedOnTheWayIsRefused(t *testing.T) {
	t.Parallel()
	requireFailures(t, map[string]failure{
		"LongerWithoutALength": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{NoLength: true, Extra: []byte("unpacked")}))
			return o
		}, fetcher.ErrIntegrity, ""},
		"Brotli": {func(w *world, o fetcher.Options) fetcher.Options {
			w.store.SetFault(onGets(fake.Fault{Break: fake.BreakShort, After: 9, Encoding: "br"}))
			return o
		}, fetcher.ErrIntegrity, "Content-Encoding br"},
	})
}

func TestAnswersWithoutALengthAreCountedInstead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", shards("one"))
	w.store.SetFault(func(r *http.Request) fake.Fault { return fake.Fault{NoLength: !r.URL.Query().Has("list-type")} })
	_, err := fetcher.Init(t.Context(), w.ranged())
	require.NoError(t, err)
	w.requireCurrent(shards("one"))
}

// TestKeysOfEveryKindArrive signs and lists keys that other tools escape wrongly,
// from stores that encode listings and those that do not.
func TestKeysOfEveryKindArrive(t *testing.T) {
	t.Parallel()
	names := []string{
		"with space.json", "a+b", "100%", "a%2Bb", "comma,comma", "what?", "no#1", "a&b=c", "ünï/Ω.txt", "日本語", "a..b", "...", "tilde~",
		"semi;colon:at@", "star*(x)'!", "$", `back\slash`, strings.Repeat("n", 255), "trailing.", " leading",
	}
	for _, plain := range []bool{false, true} {
		w := storeOf(t, fake.Options{PlainKeys: plain, Credentials: map[string]string{"id": "secret"}})
		files := shards("one")
		for _, name := range names {
			files[name] = []byte("content of " + name)
			files["deep folder+/"+name] = []byte(strings.Repeat(name, 100_000/len(name))) // in ranges
		}
		w.put("llama #1/v+1", files)
		_, err := fetcher.Init(t.Context(), w.ranged())
		require.NoError(t, err)
		w.requireCurrent(files)
	}
}

func TestObjectsNamedLikeThePrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("llama/1", model("one"))
	w.store.PutObject(bucket, "llama/1", []byte("a file beside the folder"), fake.PutOptions{})
	w.store.PutObject(bucket, "llama/1/", nil, fake.PutOptions{}) // a folder marker
	w.store.PutObject(bucket, "llama/1/tokenizer/", nil, fake.PutOptions{})
	w.mustInit()
	w.requireCurrent(model("one"))

	w.store.PutObject(bucket, "llama/1/", []byte("content"), fake.PutOptions{})
	w.requireUntouched(func() {
		_, err := w.init()
		require.ErrorIs(t, err, fetcher.ErrIntegrity)
		require.ErrorContains(t, err, "empty name")
	})
}

// roleOf is a pod's role, whose keys are key0, key1 and so on.
func roleOf(t *testing.T) (serial *atomic.Int64) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_PROFILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	serial = new(atomic.Int64)
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":"key%d","SecretAccessKey":"s","Token":"t","Expiration":"2099-01-01T00:00:00Z"}`, serial.Load())
	}))
	t.Cleanup(role.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	return serial
}

// TestCredentialsThatChangeMidTransfer: the store stops to accept a key after
// every eighth answer, or right before every HEAD of an object, whose refusal
// does not say why.
func TestCredentialsThatChangeMidTransfer(t *testing.T) {
	for name, atHeads := range map[string]bool{"EveryFewAnswers": false, "AtNewHEADs": true} {
		t.Run(name, func(t *testing.T) {
			serial := roleOf(t)
			var answers atomic.Int64
			var heads sync.Map
			w := newWorld(t)
			w.put("llama/1", shards("one"))
			w.store.SetFault(func(r *http.Request) fake.Fault {
				if atHeads && r.Method == http.MethodHead {
					if _, again := heads.LoadOrStore(r.URL.Path, true); !again {
						serial.Add(1)
					}
				}
				if !strings.Contains(r.Header.Get("Authorization"), fmt.Sprintf("Credential=key%d/", serial.Load())) {
					return fake.Fault{Status: http.StatusBadRequest, Code: "ExpiredToken"}
				}
				if !atHeads && answers.Add(1)%8 == 0 {
					serial.Add(1)
				}
				return fake.Fault{}
			})
			opts := w.rangedWith(func(o *s3conf.Options) { o.AccessKeyID, o.SecretAccessKey = "", "" })
			opts.Connections = 2 // more might meet the end of four keys in a row
			_, err := fetcher.Init(t.Context(), opts)
			require.NoError(t, err)
			w.requireCurrent(shards("one"))
			require.GreaterOrEqual(t, serial.Load(), int64(2))
		})
	}
}
