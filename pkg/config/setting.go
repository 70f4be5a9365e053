package config

import (
	"encoding"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Setting describes one variable.
type Setting struct {
	Name    string // full name of the variable
	Type    string // "string", "duration", "integer", "number", "boolean", "list of …", …
	Default string // "" is the zero value
	Doc     string // what it means, from the doc tag
	Secret  bool

	lookup string // the name that the env library asks for
	field  string // the struct field's name
	typ    reflect.Type
	index  []int
}

// Documentation returns the settings of T in the order of its fields.
func Documentation[T any](prefix string) []Setting {
	return settingsOf(reflect.TypeFor[T](), prefix)
}

// Markdown returns the settings as a table.
func Markdown(settings []Setting) string {
	var b strings.Builder
	b.WriteString("| variable | type | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range settings {
		def := ""
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		doc := strings.ReplaceAll(s.Doc, "|", `\|`)
		if s.Secret {
			doc = strings.TrimSpace(doc + " (secret)")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, s.Type, def, doc)
	}
	return b.String()
}

// masked stands for a secret that is set. Its length is not shown.
const masked = "***"

// Effective returns the values in use, keyed by variable, for one log line at
// start. Secrets (secret:"true") show only whether they are set, and passwords
// inside URLs are masked in every setting. cfg is a struct or a pointer to one.
func Effective(prefix string, cfg any) []slog.Attr {
	v := reflect.ValueOf(cfg)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var attrs []slog.Attr
	for _, s := range settingsOf(v.Type(), prefix) {
		attrs = append(attrs, slog.String(s.Name, shown(s, v.FieldByIndex(s.index))))
	}
	return attrs
}

func shown(s Setting, v reflect.Value) string {
	if s.Secret {
		if v.IsZero() {
			return ""
		}
		return masked
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = redact(fmt.Sprint(v.Index(i).Interface()))
		}
		return strings.Join(items, ",")
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
	}
	return redact(fmt.Sprint(v.Interface()))
}

var (
	// userinfo is what stands before the host of a URL, also in a list of URLs.
	// Greedy: an unescaped @ belongs to the password.
	userinfo = regexp.MustCompile(`://([^/?#\s]*)@`)
	// parameter is a secret in a query or in a libpq connection string.
	parameter = regexp.MustCompile(`(?i)\b((?:ssl)?password|token|secret)=('[^']*'|[^&\s]*)`)
)

// redact masks the secrets of URLs and connection strings inside s and leaves
// all else as it is. Where it cannot tell what is a secret it masks all.
func redact(s string) string {
	found := 0
	out := userinfo.ReplaceAllStringFunc(s, func(m string) string {
		found++
		user, _, ok := strings.Cut(m[len("://"):], ":")
		if !ok {
			return "://" + masked + "@" // a token in the place of the user
		}
		return "://" + user + ":" + masked + "@"
	})
	if strings.Contains(s, "://") && strings.Count(out, "@") != found {
		return masked // a password with an unescaped slash
	}
	return parameter.ReplaceAllString(out, "${1}="+masked)
}

func settingsOf(t reflect.Type, prefix string) []Setting {
	return walk(t, prefix, "", nil)
}

func walk(t reflect.Type, prefix, inner string, index []int) []Setting {
	var settings []Setting
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		at := append(slices.Clone(index), i)
		tag, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		if tag == "" || tag == "-" {
			if f.Type.Kind() == reflect.Struct && tag != "-" {
				settings = append(settings, walk(f.Type, prefix, inner+f.Tag.Get("envPrefix"), at)...)
			}
			continue
		}
		s := Setting{
			Name: prefix + inner + tag, lookup: prefix + inner + tag,
			Type: typeName(f.Type), Default: f.Tag.Get("envDefault"), Doc: f.Tag.Get("doc"),
			Secret: f.Tag.Get("secret") == "true",
			field:  f.Name, typ: f.Type, index: at,
		}
		if f.Tag.Get("prefix") == "none" {
			s.Name = inner + tag
		}
		settings = append(settings, s)
	}
	return settings
}

func typeName(t reflect.Type) string {
	switch {
	case t.PkgPath() == "time" && t.Name() == "Duration":
		return "duration"
	case t == reflect.TypeFor[url.URL]():
		return "URL"
	case t == reflect.TypeFor[slog.Level]():
		return "log level"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return strings.ToLower(t.Name())
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "list of " + typeName(t.Key()) + ":" + typeName(t.Elem())
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return t.Kind().String()
}
