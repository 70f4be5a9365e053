package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed templates/*.html static/*
var assets embed.FS

// page is what every page shows beside its own.
type page struct {
	Title string
	// Section is the part of the navigation that the page belongs to.
	Section  string
	Operator string
	// Query is what was looked for.
	Query string
	// Attention and Letters are how many orders and messages wait for a person; negative if that is not known.
	Attention, Letters int64
	Outcome            *outcome
	Body               any
}

// pages are the parsed templates and the static files.
type pages struct {
	templates map[string]*template.Template
	// names are the static files by their name with a hash of their content, which browsers may keep for ever; files is the way back.
	names  map[string]string
	files  map[string][]byte
	jaeger string
	log    *slog.Logger
}

// mustParsePages reads what is embedded. It panics where that cannot be used, which every test of this package finds.
func mustParsePages(jaeger string, log *slog.Logger) *pages {
	p := &pages{
		templates: make(map[string]*template.Template), names: make(map[string]string), files: make(map[string][]byte), jaeger: jaeger, log: log,
	}
	static, err := fs.ReadDir(assets, "static")
	if err != nil {
		panic(err)
	}
	for _, f := range static {
		content, err := assets.ReadFile("static/" + f.Name())
		if err != nil {
			panic(err)
		}
		hash := sha256.Sum256(content)
		base, ext := strings.TrimSuffix(f.Name(), path.Ext(f.Name())), path.Ext(f.Name())
		name := base + "-" + hex.EncodeToString(hash[:6]) + ext
		p.names[f.Name()], p.files[name] = name, content
	}
	layout := template.Must(template.New("").Funcs(p.funcs()).ParseFS(assets, "templates/layout.html", "templates/parts.html"))
	found, err := fs.ReadDir(assets, "templates")
	if err != nil {
		panic(err)
	}
	for _, f := range found {
		name := strings.TrimSuffix(f.Name(), ".html")
		p.templates[name] = template.Must(template.Must(layout.Clone()).ParseFS(assets, "templates/"+f.Name()))
	}
	return p
}

// render writes a page, whole or not at all.
func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, name string, data page) {
	var b bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&b, "layout", data); err != nil {
		p.log.ErrorContext(r.Context(), "rendering a page failed", "page", name, "error", err)
		http.Error(w, "The page cannot be shown.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error is a browser that went away
}

// part renders a part of a page.
func (p *pages) part(name string, data any) (string, error) {
	var b strings.Builder
	if err := p.templates["parts"].ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.String(), nil
}

func (p *pages) static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		content, ok := p.files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}

// page begins a page for a visitor.
func (s *Server) page(v visit, section, title string, body any) page {
	p := page{Title: title, Section: section, Operator: v.operator, Attention: -1, Letters: -1, Body: body}
	if kept := s.cfg.Sampler.Vitals(); len(kept) > 0 {
		newest := kept[len(kept)-1]
		if newest.Unfinished != nil {
			p.Attention = newest.Unfinished.GetNeedsAttention()
		}
		p.Letters = openLetters(newest)
	}
	return p
}

// show renders a page for a visitor.
func (s *Server) show(w http.ResponseWriter, r *http.Request, v visit, name, section, title string, body any) {
	p := s.page(v, section, title, body)
	p.Outcome = s.actions.outcome(r.URL.Query().Get("did"), v)
	s.pages.render(w, r, http.StatusOK, name, p)
}

// failure is what a page of an error shows.
type failure struct {
	Status int
	Detail string
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, v visit, status int, title, detail string) {
	p := page{Title: title, Attention: -1, Letters: -1, Body: failure{status, detail}}
	if v.operator != "" {
		p = s.page(v, "", title, p.Body)
	}
	s.pages.render(w, r, status, "failure", p)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request, v visit) {
	s.fail(w, r, v, http.StatusNotFound, "Not found", "There is no such page.")
}
