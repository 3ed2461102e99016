package coldstart_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// What was learned of starts is the last to go, however old it is.
func TestTrimDropsWhatIsSpareFirst(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	data := map[string]string{"damaged": strings.Repeat("x", 200)}
	put := func(name, trigger string, hour int) {
		body, err := coldstart.Encode(coldstart.Key{Namespace: "ai", Name: name, Trigger: trigger}, coldstart.Entry{
			State: []byte(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 100))), Updated: noon.Add(time.Duration(hour) * time.Hour),
		})
		require.NoError(t, err)
		data[name] = string(body)
	}
	put("start-old", "0123456789abcdef", 0)
	put("start-new", "0123456789abcdef", 1)
	put("moves-old", coldstart.Spare, 2)
	put("moves-new", coldstart.Spare, 3)
	var gone []string
	for len(data) > 0 {
		total := 0
		for name, body := range data {
			total += len(name) + len(body)
		}
		before := maps.Clone(data)
		coldstart.Trim(data, total)
		require.Equal(t, before, data, "there is room")
		coldstart.Trim(data, total-1)
		require.Len(t, data, len(before)-1)
		for name := range data {
			delete(before, name)
		}
		gone = append(gone, slices.Collect(maps.Keys(before))...)
	}
	require.Equal(t, []string{"damaged", "moves-old", "moves-new", "start-old", "start-new"}, gone)
}
