package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

const loggedID = "m-0123456789abcdef0123456789abcdef"

func TestParseRef(t *testing.T) {
	s3 := func(bucket, prefix string) registry.Location {
		return registry.Location{Scheme: "s3", Bucket: bucket, Prefix: prefix}
	}
	tests := map[string]registry.Ref{
		"models:/llama@champion":       {Kind: registry.KindAlias, Name: "llama", Selector: "champion"},
		"models:/me@home@champion":     {Kind: registry.KindAlias, Name: "me@home", Selector: "champion"},
		"models:/llama-3.1@über_alias": {Kind: registry.KindAlias, Name: "llama-3.1", Selector: "über_alias"},
		"models:/my model/7":           {Kind: registry.KindVersion, Name: "my model", Selector: "7"},
		"models:/me@home/7":            {Kind: registry.KindVersion, Name: "me@home", Selector: "7"},
		"models:/my%20model/7":         {Kind: registry.KindVersion, Name: "my%20model", Selector: "7"},
		"models:/llama/LaTest":         {Kind: registry.KindLatest, Name: "llama"},
		"models:/llama/Production":     {Kind: registry.KindStage, Name: "llama", Selector: "Production"},
		"models:/qwen-2.5.1@a":         {Kind: registry.KindAlias, Name: "qwen-2.5.1", Selector: "a"},
		"models:/" + loggedID:          {Kind: registry.KindLoggedModel, Name: loggedID},
		"models:/llama@latest":         {Kind: registry.KindAlias, Name: "llama", Selector: "latest"},
		"models:/llama@Ⅷ-二":            {Kind: registry.KindAlias, Name: "llama", Selector: "Ⅷ-二"},
		"models:/llama/007":            {Kind: registry.KindVersion, Name: "llama", Selector: "007"},
		"models:/llama.one@a":          {Kind: registry.KindAlias, Name: "llama.one", Selector: "a"},
		"s3://bucket/a/b":              {Kind: registry.KindObject, Location: s3("bucket", "a/b")},
		"s3://bucket/a/b/":             {Kind: registry.KindObject, Location: s3("bucket", "a/b")},
		"s3://bucket":                  {Kind: registry.KindObject, Location: s3("bucket", "")},
		"s3://bucket/a%20b":            {Kind: registry.KindObject, Location: s3("bucket", "a%20b")},
		"pointer+s3://bucket/live":     {Kind: registry.KindPointer, Location: s3("bucket", "live")},
		"r2://weights@acc123.r2.cloudflarestorage.com/llama/7": {Kind: registry.KindObject, Location: registry.Location{
			Scheme: "r2", Bucket: "weights", Prefix: "llama/7", Endpoint: "https://acc123.r2.cloudflarestorage.com",
		}},
		"r2://weights@acc123.eu.r2.cloudflarestorage.com/x": {Kind: registry.KindObject, Location: registry.Location{
			Scheme: "r2", Bucket: "weights", Prefix: "x", Endpoint: "https://acc123.eu.r2.cloudflarestorage.com",
		}},
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := registry.ParseRef(text)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got))
			again, err := registry.ParseRef(got.String())
			require.NoError(t, err)
			require.Equal(t, got, again, "String is read back as the same reference")
		})
	}
}

func TestParseRefRefuses(t *testing.T) {
	tests := map[string]struct {
		want  error
		words string
	}{
		"":                               {registry.ErrSyntax, "models:/name@alias"},
		"llama":                          {registry.ErrSyntax, "models:/name@alias"},
		"models:/llama":                  {registry.ErrSyntax, "add @alias or /version"},
		"models:/llama/":                 {registry.ErrSyntax, "add a version"},
		"models:/llama@":                 {registry.ErrSyntax, "alias"},
		"models:/@champion":              {registry.ErrSyntax, "model name"},
		"models:/llama/7@champion":       {registry.ErrSyntax, "both"},
		"models:/llama/7/model":          {registry.ErrUnsupported, "--sub-path"},
		"models:/llama@cham pion":        {registry.ErrSyntax, "alias is 1 to 255"},
		"models:/llama@champion/model":   {registry.ErrUnsupported, "--sub-path"},
		"models:/llama/7?x=1":            {registry.ErrSyntax, "query"},
		"models:/ llama@champion":        {registry.ErrSyntax, "model name"},
		"models:/lla:ma@champion":        {registry.ErrSyntax, "model name"},
		"pointer+models:/llama@champion": {registry.ErrUnsupported, "s3://"},
		"pointer+r2://bucket@acc.r2.cloudflarestorage.com/live": {registry.ErrSyntax, "pointer+s3"},
		"models:/llama@a?x=1":              {registry.ErrSyntax, "query"},
		"models:/main.llms.llama@champion": {registry.ErrUnsupported, "Unity Catalog"},
		"models:/main.llms.llama/3":        {registry.ErrUnsupported, "Unity Catalog"},
		"models://prof@databricks/llama/3": {registry.ErrUnsupported, "Databricks"},
		"models:/m-0123":                   {registry.ErrSyntax, "add @alias"},
		"s3://b/x":                         {registry.ErrSyntax, "bucket name"},
		"s3:///x":                          {registry.ErrSyntax, "bucket name"},
		"s3://user:pw@bucket/x":            {registry.ErrSyntax, "no user or password"},
		"s3://bucket/a/../b":               {registry.ErrSyntax, "segment"},
		"s3://bucket/a\nb":                 {registry.ErrSyntax, "control"},
		"gs://bucket/x":                    {registry.ErrUnsupported, "gs"},
		"r2://bucket@evil.example/x":       {registry.ErrSyntax, "r2.cloudflarestorage.com"},
		"r2://bucket@a.r2.cloudflarestorage.com.evil.example/x": {registry.ErrSyntax, "r2.cloudflarestorage.com"},
		"r2://bucket@a.r2.cloudflarestorage.com:8080/x":         {registry.ErrSyntax, "r2.cloudflarestorage.com"},
		"r2://bucket/x":                        {registry.ErrSyntax, "r2.cloudflarestorage.com"},
		"pointer+s3://bucket":                  {registry.ErrSyntax, "pointer+s3"},
		"pointer+s3://bucket/dir/":             {registry.ErrSyntax, "pointer+s3"},
		"models:/" + strings.Repeat("x", 3000): {registry.ErrSyntax, "longer"},
	}
	for text, tc := range tests {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			_, err := registry.ParseRef(text)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.words)
			require.NotContains(t, err.Error(), "user:pw", "what may be a password is not printed")
		})
	}
}

func TestLengthsAreCountedInCharacters(t *testing.T) {
	for n, ok := range map[int]bool{255: true, 256: false} {
		_, err := registry.ParseRef("models:/llama@" + strings.Repeat("ü", n))
		require.Equal(t, ok, err == nil, "alias of %d", n)
		_, err = registry.ParseRef("models:/" + strings.Repeat("ü", n+1) + "@champion")
		require.Equal(t, ok, err == nil, "name of %d", n+1)
	}
}

func TestParseModelShorthand(t *testing.T) {
	for text, want := range map[string]string{
		"llama@champion":         "models:/llama@champion",
		"llama/7":                "models:/llama/7",
		"models:/llama@champion": "models:/llama@champion",
		"s3://bucket/x":          "s3://bucket/x",
	} {
		got, err := registry.ParseModel(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String())
	}
	for _, text := range []string{"llama", "/models/llama", ""} {
		_, err := registry.ParseModel(text)
		require.ErrorIs(t, err, registry.ErrSyntax, text)
	}
}

func TestWithin(t *testing.T) {
	tests := map[string]struct {
		loc, outer string
		want       bool
	}{
		"Same":           {"s3://bucket/a", "s3://bucket/a", true},
		"Below":          {"s3://bucket/a/b", "s3://bucket/a", true},
		"WholeBucket":    {"s3://bucket/a", "s3://bucket", true},
		"Sibling":        {"s3://bucket/models-of-others", "s3://bucket/models", false},
		"Above":          {"s3://bucket", "s3://bucket/a", false},
		"OtherBucket":    {"s3://bucket2/a", "s3://bucket/a", false},
		"OtherScheme":    {"r2://bucket@x.r2.cloudflarestorage.com/a", "s3://bucket/a", false},
		"OtherR2Account": {"r2://bucket@x.r2.cloudflarestorage.com/a", "r2://bucket@y.r2.cloudflarestorage.com/a", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			loc, err := registry.ParseLocation(tc.loc)
			require.NoError(t, err)
			outer, err := registry.ParseLocation(tc.outer)
			require.NoError(t, err)
			require.Equal(t, tc.want, loc.Within(outer))
		})
	}
}

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{
		"models:/llama@champion", "models:/a@b@c", "models:/x/latest", "models:/" + loggedID, "s3://bucket/a//b/",
		"r2://b-b@x.r2.cloudflarestorage.com/p", "pointer+s3://bucket/k", "models://p@databricks/x/1", "models:/a.b.c/1", "s3://bucket//", "llama/7",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (registry.Ref, error){registry.ParseRef, registry.ParseModel} {
			ref, err := parse(text)
			if err != nil {
				require.True(t, errors.Is(err, registry.ErrSyntax) || errors.Is(err, registry.ErrUnsupported), "every error has a class: %v", err)
				require.NotContains(t, err.Error(), "\n")
				continue
			}
			again, err := registry.ParseRef(ref.String())
			require.NoError(t, err)
			require.Equal(t, ref, again)
			if loc := ref.Location; loc.Endpoint != "" {
				require.True(t, strings.HasSuffix(loc.Endpoint, ".r2.cloudflarestorage.com"), "signed requests go to Cloudflare only")
			}
		}
	})
}
