package mlflow_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/mlflow"
)

type versionsPage struct {
	Versions []modelVersion `json:"model_versions"`
	Next     string         `json:"next_page_token"`
}

func (p versionsPage) numbers() string {
	var out []string
	for _, v := range p.Versions {
		out = append(out, v.Version)
	}
	return strings.Join(out, " ")
}

func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func TestSearchVersions(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 12)
	for version, kind := range map[string]string{"2": "raw", "5": "Raw-2", "11": "logged"} {
		status, _ := call(t, "POST", url+api+"model-versions/set-tag", `{"name":"llama","version":"`+version+`","key":"kind of","value":"`+kind+`"}`)
		require.Equal(t, 200, status)
	}
	_, err := registry.CreateVersion("other", "s3://weights/it's")
	require.NoError(t, err)
	for filter, want := range map[string]string{
		`name = 'llama' and version_number >= 11`:                     "12 11",
		`name='llama' AND version_number<3`:                           "2 1",
		`version_number > 2 and version_number <= 4`:                  "4 3",
		`name != "llama"`:                                             "1",
		`name LIKE 'll%' and version_number = 10`:                     "10",
		`name ILIKE 'LLAM_' and version_number = 9`:                   "9",
		`name LIKE 'll' and version_number = 9`:                       "",
		"tags.`kind of` = 'raw'":                                      "2",
		"tag.\"kind of\" ILIKE 'raw%'":                                "5 2",
		"tags.`kind of` != 'raw'":                                     "11 5",
		`source_path = "s3://weights/it's"`:                           "1",
		`name = 'other' AND tag.mlflow.prompt != 'x'`:                 "",
		"name = 'other' and tags.`mlflow.prompt.is_prompt` != 'true'": "1",
		`name = 'nobody'`:                                             "",
	} {
		require.Equal(t, want, get[versionsPage](t, url+api+"model-versions/search"+query("filter", filter)).numbers(), filter)
	}
	for _, filter := range []string{"name", "name = llama", "colour = 'red'", "name = 'a' or name = 'b'", "= 'x'"} {
		status, body := call(t, "GET", url+api+"model-versions/search"+query("filter", filter), "")
		require.Equal(t, 400, status, filter)
		require.Contains(t, body, "INVALID_PARAMETER_VALUE")
	}
}

func TestOrderAndPages(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	versions(t, registry, 5)
	search := func(pairs ...string) versionsPage {
		return get[versionsPage](t, url+api+"model-versions/search"+query(pairs...))
	}
	require.Equal(t, "5 4 3 2 1", search().numbers(), "the newest change first")
	status, _ := call(t, "PATCH", url+api+"model-versions/update", `{"name":"llama","version":"2","description":"x"}`)
	require.Equal(t, 200, status)
	require.Equal(t, "2 5 4 3 1", search().numbers())
	require.Equal(t, "1 2 3 4 5", search("order_by", "version_number ASC").numbers())
	require.Equal(t, "5 4 3 2 1", search("order_by", "name", "order_by", "creation_timestamp DESC").numbers())

	var seen []string
	for token := ""; ; {
		page := search("order_by", "version_number", "max_results", "2", "page_token", token)
		seen = append(seen, page.numbers())
		if token = page.Next; token == "" {
			break
		}
	}
	require.Equal(t, []string{"1 2", "3 4", "5"}, seen)
	require.Empty(t, search("max_results", "5").Next, "a page that ends with the list is the last")

	for _, bad := range [][]string{{"max_results", "0"}, {"max_results", "200001"}, {"page_token", "!"}, {"page_token", "aGVsbG8="}, {"order_by", "colour"}} {
		status, body := call(t, "GET", url+api+"model-versions/search"+query(bad...), "")
		require.Equal(t, 400, status, bad)
		require.Contains(t, body, "INVALID_PARAMETER_VALUE")
	}
	status, body := call(t, "GET", url+api+"model-versions/search"+query("filter", "name='nobody'"), "")
	require.Equal(t, 200, status)
	require.Equal(t, "{}", body, "an empty list is left out")
}

func TestSearchModels(t *testing.T) {
	registry, url := server(t, mlflow.Options{})
	for _, name := range []string{"b", "a", "c"} {
		require.NoError(t, registry.CreateModel(name))
	}
	status, _ := call(t, "POST", url+api+"registered-models/set-tag", `{"name":"b","key":"team","value":"x"}`)
	require.Equal(t, 200, status)
	search := func(pairs ...string) string {
		page := get[struct {
			Models []struct{ Name string } `json:"registered_models"`
		}](t, url+api+"registered-models/search"+query(pairs...))
		names := ""
		for _, m := range page.Models {
			names += m.Name
		}
		return names
	}
	require.Equal(t, "abc", search())
	require.Equal(t, "cba", search("order_by", "name DESC"))
	require.Equal(t, "cab", search("order_by", "last_updated_timestamp DESC"))
	require.Equal(t, "b", search("filter", "tags.team = 'x'"))
	require.Equal(t, "abc", search("filter", "tags.`mlflow.prompt.is_prompt` != 'true'"), "as the client asks for models")
	status, _ = call(t, "GET", url+api+"registered-models/search?max_results=1001", "")
	require.Equal(t, 400, status)
}
