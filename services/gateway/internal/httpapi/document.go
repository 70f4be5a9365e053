package httpapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/throughline/throughline/proto/openapi"
)

// Documents are what describes the API, by path: with the terms that are in force, not those of the committed files. Without terms the answer
// is their error, since a wrong lifetime of keys is worse than none.
func Documents(terms func(context.Context) (openapi.Terms, error), logger *slog.Logger) map[string]http.Handler {
	serve := func(contentType string, render func(openapi.Terms) []byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, err := terms(r.Context())
			if err != nil {
				writeError(w, r, logger, err)
				return
			}
			h := w.Header()
			h.Set("Content-Type", contentType)
			h.Set("Cache-Control", "max-age=60")
			// The page has its styles within it, and needs nothing else.
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'")
			_, _ = w.Write(render(t)) // an error here is a caller that went away
		})
	}
	return map[string]http.Handler{
		"/openapi.yaml": serve("application/yaml", openapi.Terms.YAML),
		"/docs":         serve("text/html; charset=utf-8", openapi.Terms.HTML),
	}
}
