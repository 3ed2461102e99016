package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	cases := map[string]struct {
		body string
		want Request
		err  error
	}{
		"Plain":          {`{"model":"llama"}`, Request{Model: "llama"}, nil},
		"Streamed":       {` { "stream" : true , "model" : "llama" } `, Request{"llama", true}, nil},
		"StreamFalse":    {`{"stream":false,"model":"llama"}`, Request{Model: "llama"}, nil},
		"StreamAText":    {`{"stream":"true","model":"llama"}`, Request{Model: "llama"}, nil},
		"Escaped":        {`{"model":"ll\u0061ma\"\\"}`, Request{Model: `llama"\`}, nil},
		"EscapedKey":     {`{"mod\u0065l":"llama"}`, Request{Model: "llama"}, nil},
		"TwiceByEscape":  {`{"model":"a","mod\u0065l":"b"}`, Request{Model: "a"}, ErrTwice},
		"Twice":          {`{"model":"llama","model":"llama"}`, Request{Model: "llama"}, ErrTwice},
		"OtherCase":      {`{"Model":"llama"}`, Request{}, ErrNoModel},
		"OtherCaseToo":   {`{"Model":"x","model":"llama"}`, Request{Model: "llama"}, nil},
		"Nested":         {`{"a":{"model":"x","b":[{"model":"]}"}]},"model":"llama"}`, Request{Model: "llama"}, nil},
		"QuoteInside":    {`{"a":"\\\"}","model":"llama"}`, Request{Model: "llama"}, nil},
		"Numbers":        {`{"temperature":-1.5e+3,"x":null,"y":NaN,"model":"llama"}`, Request{Model: "llama"}, nil},
		"Empty":          {`{}`, Request{}, ErrNoModel},
		"EmptyName":      {`{"model":"","stream":true}`, Request{Stream: true}, ErrNoModel},
		"Number":         {`{"model":7}`, Request{}, ErrBadModel},
		"Null":           {`{"model":null}`, Request{}, ErrBadModel},
		"NoBody":         {``, Request{}, ErrNotJSON},
		"Garbage":        {`model=llama`, Request{}, ErrNotJSON},
		"Array":          {`["model"]`, Request{}, ErrNotJSON},
		"Cut":            {`{"model":"llama"`, Request{Model: "llama"}, ErrNotJSON},
		"CutInside":      {`{"model":"llama","messages":[{"a":"b"`, Request{Model: "llama"}, ErrNotJSON},
		"Unbalanced":     {`{"model":"llama","messages":[}]}`, Request{Model: "llama"}, ErrNotJSON},
		"Two":            {`{"model":"llama"}{}`, Request{Model: "llama"}, ErrNotJSON},
		"TrailingComma":  {`{"model":"llama",}`, Request{Model: "llama"}, ErrNotJSON},
		"NoColon":        {`{"model" "llama"}`, Request{}, ErrNotJSON},
		"NoValue":        {`{"model":}`, Request{}, ErrNotJSON},
		"BareKey":        {`{model:"llama"}`, Request{}, ErrNotJSON},
		"TooDeep":        {`{"model":"llama","x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, Request{Model: "llama"}, ErrNotJSON},
		"ControlInValue": {"{\"model\":\"a\nb\"}", Request{}, ErrBadModel},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read("application/json", []byte(tc.body))
			require.ErrorIs(t, err, tc.err)
			if tc.err == nil {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestReadForm(t *testing.T) {
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := part("file", "RIFF\r\nmodel=llama")
	cases := map[string]struct {
		body string
		want Request
		err  error
	}{
		"Model":  {file + part("model", "whisper") + part("stream", "true") + "--b--\r\n", Request{"whisper", true}, nil},
		"Twice":  {part("model", "a") + file + part("model", "b") + "--b--\r\n", Request{Model: "a"}, ErrTwice},
		"None":   {file + "--b--\r\n", Request{}, ErrNoModel},
		"NoForm": {"nothing of the kind", Request{}, ErrNotForm},
		"Cut":    {part("model", "whisper"), Request{}, ErrNotForm},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read("multipart/form-data; boundary=b", []byte(tc.body))
			require.ErrorIs(t, err, tc.err)
			if tc.err == nil {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// What encoding/json takes, the walk takes, with the same model; it may take
// more, which is for the engine to refuse.
func FuzzRead(f *testing.F) {
	for _, s := range []string{`{"model":"llama"}`, `{"a":[1,{"b":"\\"}],"model":"x","stream":true}`, `{"model":"a","model":"b"}`, `{`, `{"a":"\"`, `{"":}`, `{"a":[}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Read("", body)
		var all map[string]json.RawMessage
		if json.Unmarshal(body, &all) != nil || all == nil {
			return
		}
		require.NotErrorIs(t, err, ErrNotJSON, "a whole object")
		var name string
		if err == nil {
			require.NoError(t, json.Unmarshal(all["model"], &name))
			require.Equal(t, name, got.Model)
		}
		Session(body, 100)
	})
}

func TestSession(t *testing.T) {
	same := func(a, b string) bool {
		x, okX := Session([]byte(a), 1000)
		y, okY := Session([]byte(b), 1000)
		return okX && okY && x == y
	}
	first := `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`
	later := `{"temperature":1,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"how are you"}]}`
	other := `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"goodbye"}]}`
	require.True(t, same(first, later), "a conversation stays one as it grows")
	require.False(t, same(first, other))
	require.True(t, same(`{"prompt_cache_key":"k","messages":[1]}`, `{"messages":[2],"prompt_cache_key":"k"}`), "the key is the client's own word")
	require.True(t, same(`{"prompt":"once upon a time"}`, `{"prompt":"once upon a time","max_tokens":5}`))
	require.False(t, same(`{"prompt":"once"}`, `{"prompt":"twice"}`))
	for _, none := range []string{`{}`, `{"messages":[]}`, `{"messages":"x"}`, ``, `{"prompt_cache_key":7}`} {
		_, ok := Session([]byte(none), 1000)
		require.Equal(t, false, ok, none)
	}
	long := strings.Repeat("x", 2000)
	a, _ := Session([]byte(`{"prompt":"`+long+`a"}`), 1000)
	b, _ := Session([]byte(`{"prompt":"`+long+`b"}`), 1000)
	require.Equal(t, a, b, "only the beginning counts")
}

func BenchmarkRead(b *testing.B) {
	for name, body := range map[string]string{
		"1KiB":  `{"messages":[{"role":"user","content":"` + strings.Repeat("words and words ", 60) + `"}],"model":"llama"}`,
		"2MiB":  `{"messages":[{"role":"user","content":"` + strings.Repeat("0123456789abcdef", 131072) + `"}],"model":"llama"}`,
		"Array": `{"model":"llama","prompt":[` + strings.Repeat("12345,", 20000) + `1]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := Read("application/json", []byte(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
