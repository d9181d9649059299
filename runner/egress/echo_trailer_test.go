package egress

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// A trailer that shows the credential is left out, and its stream still ends.
// The drill found that it did not.
func TestMaskedTrailer(t *testing.T) {
	l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}), inspectRule(injecting(contract.InjectBearer, "")))
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "words")
		w.Header().Set(http.TrailerPrefix+"X-Echo", r.Header.Get("Authorization"))
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.client(true).Do(newRequest(t, "GET", "https://"+labHost+"/", nil).WithContext(ctx))
	if text := textOf(t, r, err); text != "words" || len(r.Trailer.Get("X-Echo")) > 0 {
		t.Errorf("answered %q, trailers %v", text, r.Trailer)
	}
}
