package fetcher_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// deadlineOfHopeless bounds runs that never succeed.
const deadlineOfHopeless = 5 * time.Second

// pager stands before a store and changes the pages of its listings.
type pager struct {
	fetcher.S3API
	change func(n int, in *awss3.ListObjectsV2Input, out *awss3.ListObjectsV2Output) *awss3.ListObjectsV2Output
	pages  int
	empty  bool // change looks at no page
}

func (p *pager) ListObjectsV2(ctx context.Context, in *awss3.ListObjectsV2Input, opts ...func(*awss3.Options)) (*awss3.ListObjectsV2Output, error) {
	asked := *in
	asked.ContinuationToken = nil // all tokens here are made up
	p.pages++
	if p.empty { // asking for what is not looked at takes time
		return p.change(p.pages, in, nil), nil
	}
	out, err := p.S3API.ListObjectsV2(ctx, &asked, opts...)
	if err != nil {
		return nil, err
	}
	return p.change(p.pages, in, out), nil
}

func emptyPage(token string) *awss3.ListObjectsV2Output {
	return &awss3.ListObjectsV2Output{IsTruncated: aws.Bool(true), NextContinuationToken: aws.String(token)}
}

func TestListingsThatDoNotGoOnAsTheyShould(t *testing.T) {
	t.Parallel()
	type page = awss3.ListObjectsV2Output
	tests := map[string]struct {
		change func(n int, in *awss3.ListObjectsV2Input, out *page) *page
		words  string // "" is success
	}{
		"TheSameTokenAgain": {func(_ int, _ *awss3.ListObjectsV2Input, out *page) *page {
			out.IsTruncated, out.NextContinuationToken = aws.Bool(true), aws.String("made up")
			return out
		}, "goes on but not how"},
		"MoreWithoutAToken": {func(_ int, _ *awss3.ListObjectsV2Input, out *page) *page {
			out.IsTruncated = aws.Bool(true)
			return out
		}, "goes on but not how"},
		"AFewEmptyPages": {func(n int, _ *awss3.ListObjectsV2Input, out *page) *page {
			if n <= 20 {
				return emptyPage(fmt.Sprintf("t%d", n))
			}
			return out
		}, ""},
		"EmptyPagesForEver": {func(n int, _ *awss3.ListObjectsV2Input, _ *page) *page {
			return emptyPage(fmt.Sprintf("t%d", n))
		}, "pages in a row were empty"},
		"ATokenAfterTheEnd": {func(_ int, _ *awss3.ListObjectsV2Input, out *page) *page {
			out.NextContinuationToken = aws.String("made up")
			return out
		}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put("llama/1", model("one"))
			opts := w.options()
			connect := opts.Connect
			opts.Connect = func(ctx context.Context, loc registry.Location) (fetcher.S3API, error) {
				api, err := connect(ctx, loc)
				return &pager{S3API: plain{api}, change: tc.change, empty: name == "EmptyPagesForEver"}, err
			}
			if tc.words != "" {
				opts.Deadline = deadlineOfHopeless
			}
			_, err := fetcher.Init(t.Context(), opts)
			if tc.words != "" {
				require.ErrorIs(t, err, fetcher.ErrStoreUnreachable)
				require.ErrorContains(t, err, tc.words)
				return
			}
			require.NoError(t, err)
			w.requireCurrent(model("one"))
		})
	}
}

// plain hides everything of a client but S3API.
type plain struct{ fetcher.S3API }
