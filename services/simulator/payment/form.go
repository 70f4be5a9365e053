package payment

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// form reads a request's parameters. The first problem is kept in err; later
// reads return zero values.
type form struct {
	values  url.Values
	baseURL string // how the caller reached us, for links in answers
	err     *apiError
}

func (f *form) fail(e *apiError) {
	if f.err == nil {
		f.err = e
	}
}

// only refuses parameters that the operation does not know. A parameter is
// known by the part before its first bracket.
func (f *form) only(names ...string) {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		root, _, _ := strings.Cut(key, "[")
		if root != "expand" && !slices.Contains(names, root) {
			f.fail(invalidParam(key, "parameter_unknown", "Received unknown parameter: "+key))
			return
		}
	}
}

func (f *form) str(name string) string { return f.values.Get(name) }

func (f *form) need(name string) string {
	if v := f.values.Get(name); v != "" {
		return v
	}
	f.fail(missingParam(name))
	return ""
}

// integer returns the parameter's value and whether it was given.
func (f *form) integer(name string) (int64, bool) {
	v := f.values.Get(name)
	if v == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		f.fail(invalidParam(name, "parameter_invalid_integer", "Invalid integer: "+v))
		return 0, false
	}
	return n, true
}

func (f *form) boolean(name string) bool {
	switch v := f.values.Get(name); v {
	case "", "false":
		return false
	case "true":
		return true
	default:
		f.fail(invalidParam(name, "", "Invalid boolean: "+v))
		return false
	}
}

// choice returns one of the given values; the first is the default.
func (f *form) choice(name string, values ...string) string {
	v := f.values.Get(name)
	if v == "" {
		return values[0]
	}
	if !slices.Contains(values, v) {
		f.fail(invalidParam(name, "", fmt.Sprintf("Invalid %s: must be one of %s", name, strings.Join(values, ", "))))
	}
	return v
}

// The provider's bounds on metadata.
const (
	maxMetadataKeys  = 50
	maxMetadataKey   = 40
	maxMetadataValue = 500
)

func (f *form) metadata() map[string]string {
	m := map[string]string{}
	for key, values := range f.values {
		name, ok := strings.CutPrefix(key, "metadata[")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "]")
		if len(name) > maxMetadataKey || len(values[0]) > maxMetadataValue {
			f.fail(invalidParam(key, "", "Metadata keys can have up to 40 characters and values up to 500."))
			return nil
		}
		m[name] = values[0]
	}
	if len(m) > maxMetadataKeys {
		f.fail(invalidParam("metadata", "", "Metadata can have up to 50 keys."))
	}
	return m
}

// expands reports whether the answer is to have the object in place of its id.
func (f *form) expands(path string) bool {
	for key, values := range f.values {
		if root, _, _ := strings.Cut(key, "["); root == "expand" && slices.Contains(values, path) {
			return true
		}
	}
	return false
}
