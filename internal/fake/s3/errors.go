package s3

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
)

// apiError is an answer in S3's XML error form.
type apiError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	Region  string `xml:",omitempty"`
	status  int
}

func errorf(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func noSuchBucket(bucket string) *apiError {
	return errorf(http.StatusNotFound, "NoSuchBucket", "The specified bucket %q does not exist", bucket)
}

func noSuchKey() *apiError {
	return errorf(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

func preconditionFailed() *apiError {
	return errorf(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
}

func writeError(w http.ResponseWriter, r *http.Request, e *apiError) {
	if r.Method == http.MethodHead { // S3 sends no body to a HEAD
		w.WriteHeader(e.status)
		return
	}
	writeXML(w, e.status, e)
}

func writeXML(w http.ResponseWriter, status int, v any) {
	body, err := xml.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body = append([]byte(xml.Header), body...)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone if this fails
}
