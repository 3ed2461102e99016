package objectpointer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/objectpointer"
)

const (
	bucket = "pointers"
	key    = "llama/live"
)

var ref = registry.Ref{Kind: registry.KindPointer, Location: registry.Location{Scheme: "s3", Bucket: bucket, Prefix: key}}

// newStore is a store with an empty bucket, and its SDK client.
func newStore(t *testing.T) (*fake.Server, *s3conf.Client) {
	t.Helper()
	store := fake.New(fake.Options{})
	store.CreateBucket(bucket)
	ts := httptest.NewServer(store)
	t.Cleanup(ts.Close)
	c, err := s3conf.New(t.Context(), s3conf.Options{Endpoint: ts.URL, AccessKeyID: "id", SecretAccessKey: "secret"})
	require.NoError(t, err)
	return store, c
}

// change is a move to a version that lies where its name says.
func change(from registry.Position, to string) registry.Change {
	return registry.Change{
		Expect: from, To: to, Location: registry.Location{Scheme: "s3", Bucket: "weights", Prefix: "llama/" + to},
		Digest: strings.Repeat("0a", 32), Action: registry.ActionPromote, By: "ann", Message: "why",
	}
}

// made is a store that holds the pointer, which names version 1.
func made(t *testing.T) (*fake.Server, *s3conf.Client, registry.Position) {
	t.Helper()
	store, c := newStore(t)
	pos, err := objectpointer.New(c, objectpointer.Options{}).Init(t.Context(), ref, change(registry.Position{}, "1"))
	require.NoError(t, err)
	return store, c, pos
}

func TestInit(t *testing.T) {
	_, c, pos := made(t)
	require.Equal(t, "1", pos.Version)
	require.Equal(t, registry.ActionInit, pos.History[0].Action)
	require.Empty(t, pos.History[0].From)
	p := objectpointer.New(c, objectpointer.Options{})
	_, err := p.Init(t.Context(), ref, change(registry.Position{}, "2"))
	require.ErrorIs(t, err, registry.ErrExists)
	now, err := p.Read(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, pos, now, "the old one is as it was")
}

func TestInitLeavesForeignObjectsAlone(t *testing.T) {
	store, c := newStore(t)
	store.PutObject(bucket, key, []byte("somebody's notes"), fake.PutOptions{})
	p := objectpointer.New(c, objectpointer.Options{})
	_, err := p.Init(t.Context(), ref, change(registry.Position{}, "1"))
	require.ErrorIs(t, err, registry.ErrExists)
	_, err = p.Move(t.Context(), ref, change(registry.Position{}, "1"))
	require.ErrorIs(t, err, registry.ErrBroken)
	require.Zero(t, store.Count("PutObject"))
}

// The format is a promise: this is how version 1 looks.
func TestFormat(t *testing.T) {
	_, c := newStore(t)
	at := time.Date(2026, 3, 2, 9, 0, 0, 5, time.FixedZone("", 3600))
	p := objectpointer.New(c, objectpointer.Options{Now: func() time.Time { return at }})
	pos, err := p.Init(t.Context(), ref, change(registry.Position{}, "1"))
	require.NoError(t, err)
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Body.Close()) }()
	require.Equal(t, "application/json", aws.ToString(out.ContentType))
	var got, want any
	require.NoError(t, json.NewDecoder(out.Body).Decode(&got))
	digest := strings.Repeat("0a", 32)
	require.NoError(t, json.Unmarshal([]byte(`{"v":1,"ref":"pointer+s3://pointers/llama/live","version":"1","location":"s3://weights/llama/1","digest":"`+digest+`",
		"at":"2026-03-02T08:00:00Z","by":"ann","history":[{"id":"`+pos.History[0].ID+`","at":"2026-03-02T08:00:00Z","by":"ann","action":"init","to":"1",
		"message":"why","location":"s3://weights/llama/1","digest":"`+digest+`","state":"done"}]}`), &want))
	require.Equal(t, want, got)
}

func TestVersionNames(t *testing.T) {
	_, c, pos := made(t)
	p := objectpointer.New(c, objectpointer.Options{})
	for name, ok := range map[string]bool{
		"7": true, "release 2026/03 – blue": true, strings.Repeat("ü", 128): true, `<&">'`: true,
		"": false, strings.Repeat("ü", 129): false, "a\nb": false, " a": false, "\xff": false,
	} {
		ch := change(pos, "x")
		ch.To = name
		now, err := p.Move(t.Context(), ref, ch)
		if !ok {
			require.ErrorIs(t, err, registry.ErrSyntax, "%q", name)
			continue
		}
		require.NoError(t, err, "%q", name)
		require.Equal(t, name, now.Version)
		res, err := p.Resolve(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, registry.Resolution{Ref: ref, Version: name, Location: ch.Location, Digest: ch.Digest}, res)
		pos = now
	}
}

func TestChangeIsChecked(t *testing.T) {
	store, c, pos := made(t)
	p := objectpointer.New(c, objectpointer.Options{})
	writes := store.Count("PutObject")
	for words, spoil := range map[string]func(*registry.Change){
		"location is empty":     func(ch *registry.Change) { ch.Location = registry.Location{} },
		"cannot be written":     func(ch *registry.Change) { ch.Location.Prefix = "a/../b" },
		"longer than 2048":      func(ch *registry.Change) { ch.Location.Prefix = strings.Repeat("x", 2048) },
		"SHA-256 in lower-case": func(ch *registry.Change) { ch.Digest = strings.Repeat("0A", 32) },
		"digest is not":         func(ch *registry.Change) { ch.Digest = "" },
	} {
		ch := change(pos, "2")
		spoil(&ch)
		_, err := p.Move(t.Context(), ref, ch)
		require.ErrorIs(t, err, registry.ErrSyntax)
		require.ErrorContains(t, err, words)
	}
	require.Equal(t, writes, store.Count("PutObject"))
}

// The same version at another place is a move.
func TestMoveToTheSameNameElsewhere(t *testing.T) {
	_, c, pos := made(t)
	ch := change(pos, "1")
	ch.Location.Bucket = "elsewhere"
	now, err := objectpointer.New(c, objectpointer.Options{}).Move(t.Context(), ref, ch)
	require.NoError(t, err)
	require.Equal(t, "elsewhere", now.Location.Bucket)
	require.Len(t, now.History, 2)
}

func TestExpectedTagIsCompared(t *testing.T) {
	_, c, pos := made(t)
	p := objectpointer.New(c, objectpointer.Options{})
	there, err := p.Move(t.Context(), ref, change(pos, "2"))
	require.NoError(t, err)
	_, err = p.Move(t.Context(), ref, change(there, "1"))
	require.NoError(t, err)
	_, err = p.Move(t.Context(), ref, change(pos, "3"))
	require.ErrorIs(t, err, registry.ErrConflict, "it names version 1 again, but was moved since")
	pos.Tag = ""
	_, err = p.Move(t.Context(), ref, change(pos, "3"))
	require.NoError(t, err, "a caller without a tag asks for the version only")
}

// One write's answer goes wrong.
func TestMoveFindsOutWhatBecameOfItsWrite(t *testing.T) {
	tests := map[string]struct {
		status int
		code   string
		done   bool // the store wrote it all the same
		other  bool // another mover came in between
		want   error
		reason string
	}{
		"412":             {412, "PreconditionFailed", false, true, registry.ErrConflict, "lost a race"},
		"409":             {409, "ConditionalRequestConflict", false, true, registry.ErrConflict, "lost a race while the other was writing"},
		"409Alone":        {409, "ConditionalRequestConflict", false, false, registry.ErrConflict, "the other gave up"},
		"412IsOurOwn":     {412, "PreconditionFailed", true, false, nil, "the SDK sent it twice"},
		"LostAnswer":      {400, "RequestTimeout", true, false, nil, "it was written"},
		"LostRequest":     {400, "RequestTimeout", false, false, registry.ErrUnreachable, "it was not"},
		"LostThenAnother": {400, "RequestTimeout", false, true, registry.ErrConflict, "somebody else moved it"},
		"Overtaken":       {400, "RequestTimeout", true, true, registry.ErrOvertaken, "ours came, and another after it"},
		"Denied":          {403, "AccessDenied", false, false, registry.ErrDenied, ""},
		"NotImplemented":  {501, "NotImplemented", false, false, objectpointer.ErrNoConditions, "a store that says so itself"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			store, c, pos := made(t)
			other := objectpointer.New(c, objectpointer.Options{})
			p := objectpointer.New(faultyPut{c, func(in *s3.PutObjectInput) error {
				if tc.done {
					_, err := c.PutObject(t.Context(), in)
					require.NoError(t, err)
				}
				if tc.other {
					now, err := other.Read(t.Context(), ref)
					require.NoError(t, err)
					_, err = other.Move(t.Context(), ref, change(now, "3"))
					require.NoError(t, err)
				}
				return answer(tc.status, tc.code)
			}}, objectpointer.Options{})
			now, err := p.Move(t.Context(), ref, change(pos, "2"))
			if tc.want == nil {
				require.NoError(t, err, tc.reason)
				require.Equal(t, "2", now.Version)
				require.NotEmpty(t, now.Tag)
				return
			}
			require.ErrorIs(t, err, tc.want, tc.reason)
			require.NotErrorIs(t, err, registry.ErrUncertain)
			require.NotZero(t, store.Count("PutObject"))
		})
	}
}

// answer is an error as the SDK makes it of an answer.
func answer(status int, code string) error {
	return answerError{status, code}
}

type answerError struct {
	status int
	code   string
}

func (e answerError) Error() string       { return e.code }
func (e answerError) HTTPStatusCode() int { return e.status }

// faultyPut is a store whose PUTs answer what put says.
type faultyPut struct {
	objectpointer.Store
	put func(*s3.PutObjectInput) error
}

func (f faultyPut) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if err := f.put(in); err != nil {
		return nil, err
	}
	return &s3.PutObjectOutput{}, nil
}

func TestMoveThatNobodyCanVerify(t *testing.T) {
	var down atomic.Bool
	store, c, pos := made(t)
	store.SetFault(func(r *http.Request) fake.Fault {
		if r.Method == http.MethodPut {
			down.Store(true)
		}
		if down.Load() {
			return fake.Fault{Status: http.StatusServiceUnavailable, Code: "Gone"}
		}
		return fake.Fault{}
	})
	_, err := objectpointer.New(c, objectpointer.Options{}).Move(t.Context(), ref, change(pos, "2"))
	require.ErrorIs(t, err, registry.ErrUncertain)
	require.ErrorIs(t, err, registry.ErrUnreachable)
}

func TestMoveFindsOutAfterItsCallerHasGone(t *testing.T) {
	_, c, pos := made(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := objectpointer.New(faultyPut{c, func(in *s3.PutObjectInput) error {
		_, err := c.PutObject(t.Context(), in)
		require.NoError(t, err)
		cancel()
		return ctx.Err()
	}}, objectpointer.Options{})
	now, err := p.Move(ctx, ref, change(pos, "2"))
	require.NoError(t, err)
	require.Equal(t, "2", now.Version)
}

// careless is a store that ignores conditions, as some S3 servers do.
type careless struct {
	objectpointer.Store
	before, after func() // of each write
}

func (c careless) PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if c.before != nil {
		c.before()
	}
	in.IfMatch, in.IfNoneMatch = nil, nil
	out, err := c.Store.PutObject(ctx, in, opts...)
	if c.after != nil {
		c.after()
	}
	return out, err
}

func TestAStoreWithoutConditionsIsNoticed(t *testing.T) {
	_, c, pos := made(t)
	hasRead, mayWrite, hasWritten := make(chan struct{}), make(chan struct{}), make(chan struct{})
	slow := objectpointer.New(careless{Store: c, before: func() { close(hasRead); <-mayWrite }, after: func() { close(hasWritten) }}, objectpointer.Options{})
	quick := objectpointer.New(careless{Store: c, after: func() { close(mayWrite); <-hasWritten }}, objectpointer.Options{})
	var wg sync.WaitGroup
	var slowErr error
	wg.Go(func() { _, slowErr = slow.Move(t.Context(), ref, change(pos, "2")) })
	<-hasRead
	_, err := quick.Move(t.Context(), ref, change(pos, "3"))
	wg.Wait()
	require.NoError(t, slowErr, "it overwrote the other one and cannot know")
	require.ErrorIs(t, err, objectpointer.ErrNoConditions)
	require.ErrorIs(t, err, registry.ErrConflict)
	require.ErrorContains(t, err, "without a trace")
}

func TestAStoreWithoutConditionsCanBeRefused(t *testing.T) {
	store, c, pos := made(t)
	_, err := objectpointer.New(careless{Store: c}, objectpointer.Options{RequireConditions: true}).Move(t.Context(), ref, change(pos, "2"))
	require.ErrorIs(t, err, objectpointer.ErrNoConditions)
	require.ErrorIs(t, err, registry.ErrUnsupported)
	writes := store.Count("PutObject")

	p := objectpointer.New(c, objectpointer.Options{RequireConditions: true})
	store.DeleteObject(bucket, key+".pilotlight-probe")
	now, err := p.Move(t.Context(), ref, change(pos, "2"))
	require.NoError(t, err, "and nothing was written above")
	_, err = p.Move(t.Context(), ref, change(now, "3"))
	require.NoError(t, err)
	require.Equal(t, writes+3, store.Count("PutObject"), "a bucket is asked once")
	_, err = c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key + ".pilotlight-probe")})
	require.Error(t, err, "a store that refuses keeps nothing")
}

func TestBrokenObjects(t *testing.T) {
	good := `"version":"1","location":"s3://weights/x","digest":"` + strings.Repeat("0a", 32) + `"`
	tests := map[string]struct {
		content string
		want    error
		words   string
	}{
		"Empty":      {"", registry.ErrBroken, "JSON"},
		"Text":       {"version 7", registry.ErrBroken, "JSON"},
		"Cut":        {`{"v":1,"version`, registry.ErrBroken, "JSON"},
		"List":       {`[]`, registry.ErrBroken, "JSON"},
		"NoFormat":   {`{` + good + `}`, registry.ErrBroken, `no format number`},
		"Newer":      {`{"v":2,"everything":"else"}`, registry.ErrUnsupported, "format 2 and this program reads 1"},
		"NoVersion":  {`{"v":1,"location":"s3://weights/x","digest":"` + strings.Repeat("0a", 32) + `"}`, registry.ErrBroken, "version's name"},
		"NoLocation": {`{"v":1,"version":"1","digest":"` + strings.Repeat("0a", 32) + `"}`, registry.ErrBroken, "location"},
		"Scheme":     {`{"v":1,"version":"1","location":"file:///x","digest":""}`, registry.ErrBroken, "file"},
		"NoDigest":   {`{"v":1,"version":"1","location":"s3://weights/x"}`, registry.ErrBroken, "digest"},
		"WrongType":  {`{"v":1,"version":7,"location":"s3://weights/x"}`, registry.ErrBroken, "JSON"},
		"TooLarge":   {`{"v":1,` + good + `,"x":"` + strings.Repeat("x", objectpointer.MaxSize) + `"}`, registry.ErrBroken, "larger than 256 KiB"},
	}
	store, c := newStore(t)
	p := objectpointer.New(c, objectpointer.Options{})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			store.PutObject(bucket, key, []byte(tc.content), fake.PutOptions{})
			_, err := p.Read(t.Context(), ref)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.ErrorContains(t, err, "pointer+s3://pointers/llama/live", "the error names the object")
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 600)
			_, err = p.Move(t.Context(), ref, change(registry.Position{Version: "1"}, "2"))
			require.ErrorIs(t, err, tc.want, "and it is not overwritten")
		})
	}
}

func TestAHandEditedHistoryNeverBlocksARollback(t *testing.T) {
	store, c := newStore(t)
	p := objectpointer.New(c, objectpointer.Options{})
	for name, history := range map[string]string{"Text": `"by hand"`, "Entries": `[{"to":""},7]`, "Null": `null`} {
		store.PutObject(bucket, key, fmt.Appendf(nil, `{"v":1,"version":"1","location":"s3://weights/x","digest":%q,"history":%s,"more":1}`, strings.Repeat("0a", 32), history), fake.PutOptions{})
		pos, err := p.Read(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, name == "Null", pos.HistoryErr == nil)
		pos, err = p.Move(t.Context(), ref, change(pos, "2"))
		require.NoError(t, err)
		require.Len(t, pos.History, 1)
	}
}

func TestErrorsOfTheStore(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fake.Fault
		want  error
	}{
		"Denied":      {fake.Fault{Status: 403}, registry.ErrDenied},
		"Missing":     {fake.Fault{Status: 404}, registry.ErrNotFound},
		"Unavailable": {fake.Fault{Status: 418}, registry.ErrUnreachable},
		"Reset":       {fake.Fault{Break: fake.BreakReset, After: 3}, registry.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			store, c, _ := made(t)
			store.SetFault(func(*http.Request) fake.Fault { return tc.fault })
			_, err := objectpointer.New(c, objectpointer.Options{}).Read(t.Context(), ref)
			require.ErrorIs(t, err, tc.want)
		})
	}
}

// conditional answers as a store that knows If-None-Match, and counts.
type conditional struct {
	objectpointer.Store
	gets, unchanged int
}

func (c *conditional) GetObject(ctx context.Context, in *s3.GetObjectInput, opts ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	c.gets++
	out, err := c.Store.GetObject(ctx, in, opts...)
	if err != nil || in.IfNoneMatch == nil || aws.ToString(in.IfNoneMatch) != aws.ToString(out.ETag) {
		return out, err
	}
	c.unchanged++
	return nil, errors.Join(out.Body.Close(), notModified{})
}

type notModified struct{}

func (notModified) Error() string       { return "304" }
func (notModified) HTTPStatusCode() int { return http.StatusNotModified }

func TestAnUnchangedPointerIsOneGET(t *testing.T) {
	_, c, pos := made(t)
	for name, store := range map[string]objectpointer.Store{"StoreThatSendsItAgain": c, "StoreThatSays304": &conditional{Store: c}} {
		t.Run(name, func(t *testing.T) {
			p := objectpointer.New(store, objectpointer.Options{})
			resolve := func(want string) {
				t.Helper()
				res, err := p.Resolve(t.Context(), ref)
				require.NoError(t, err)
				require.Equal(t, registry.Resolution{Ref: ref, Version: want, Location: change(pos, want).Location, Digest: change(pos, want).Digest}, res)
			}
			now, err := p.Read(t.Context(), ref)
			require.NoError(t, err)
			for range 3 {
				resolve(now.Version)
			}
			next := map[string]string{"1": "2", "2": "1"}[now.Version]
			_, err = objectpointer.New(c, objectpointer.Options{}).Move(t.Context(), ref, change(now, next))
			require.NoError(t, err)
			for range 2 {
				resolve(next)
			}
			if counted, ok := store.(*conditional); ok {
				require.Equal(t, 6, counted.gets)
				require.Equal(t, 3, counted.unchanged)
			}
		})
	}
}

func TestARequestIsBounded(t *testing.T) {
	store, c, _ := made(t)
	store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Break: fake.BreakStall, After: 3} })
	_, err := objectpointer.New(c, objectpointer.Options{Timeout: 50 * time.Millisecond}).Read(t.Context(), ref)
	require.ErrorIs(t, err, registry.ErrUnreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
