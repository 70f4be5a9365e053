package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/throughline/throughline/pkg/fault"
)

// Prefix begins the names of all variables that are Throughline's own.
const Prefix = "THROUGHLINE_"

// Validator is implemented by a configuration that checks its settings against
// each other. The error should name the two that disagree.
type Validator interface{ Validate() error }

// Option changes how Load checks.
type Option func(*options)

type options struct{ known []string }

// Known adds full names of variables that are someone else's settings: no error,
// and not read. The variable of package fault is always known.
func Known(names ...string) Option {
	return func(o *options) { o.known = append(o.known, names...) }
}

// KnownTo adds the variables of another configuration, read by someone else from the same
// environment.
func KnownTo[T any](prefix string) Option { return Known(Names[T](prefix)...) }

// Load reads a T from environ, in the form of os.Environ; of a name that occurs
// twice the last value holds. All faults are reported at once: [ErrUnknown] for
// variables, [ErrValue] for values, and what Validate says if T is a [Validator].
// Values of secret settings are in no error.
func Load[T any](prefix string, environ []string, opts ...Option) (T, error) {
	o := options{known: []string{fault.EnvVar}}
	for _, opt := range opts {
		opt(&o)
	}
	vars := toMap(environ)
	settings := settingsOf(reflect.TypeFor[T](), prefix)

	var errs []error
	errs = append(errs, unknown(prefix, vars, settings, o.known)...)

	var cfg T
	// The library knows no exceptions from its prefix and prepends it to all, so
	// it gets a map that holds our settings only, under the names it asks for.
	values := make(map[string]string, len(settings))
	for _, s := range settings {
		// An empty variable is one that is not set: what compose files and shells mean.
		if v := vars[s.Name]; v != "" {
			values[s.lookup] = v
		}
	}
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: values, Prefix: prefix}); err != nil {
		errs = append(errs, readable(err, settings)...)
	}
	if len(errs) > 0 {
		var zero T
		return zero, fmt.Errorf("reading the environment: %w", errors.Join(errs...))
	}
	if v, ok := any(&cfg).(Validator); ok {
		if err := v.Validate(); err != nil {
			var zero T
			return zero, fmt.Errorf("checking the settings: %w", err)
		}
	}
	return cfg, nil
}

// Names returns the full names of the variables of T, sorted.
func Names[T any](prefix string) []string {
	var names []string
	for _, s := range settingsOf(reflect.TypeFor[T](), prefix) {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func toMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			m[name] = value
		}
	}
	return m
}

func unknown(prefix string, vars map[string]string, settings []Setting, known []string) []error {
	names := slices.Clone(known)
	for _, s := range settings {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !strings.HasPrefix(name, prefix) || slices.Contains(names, name) {
			continue
		}
		errs = append(errs, &UnknownError{Name: name, Nearest: nearest(name, prefix, names)})
	}
	return errs
}

// readable turns the library's errors, which name struct fields, into errors
// that name variables, as the person who set them knows them.
func readable(err error, settings []Setting) []error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []error{err}
	}
	var errs []error
	for _, err := range all.Errors {
		var parse env.ParseError
		if !errors.As(err, &parse) {
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.field == parse.Name && s.typ == parse.Type })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("%w: %w", ErrValue, err))
		case settings[i].Secret:
			errs = append(errs, fmt.Errorf("%w %s, want a value of type %s", ErrValue, settings[i].Name, settings[i].Type))
		default:
			errs = append(errs, fmt.Errorf("%w %s, want a value of type %s: %w", ErrValue, settings[i].Name, settings[i].Type, parse.Err))
		}
	}
	return errs
}

// nearest returns the known name with the least edit distance, the first of
// equals. A name that has the prefix and should not is one step away.
func nearest(name, prefix string, names []string) string {
	best, at := "", 0
	for _, n := range names {
		d := min(distance(name, n), distance(strings.TrimPrefix(name, prefix), n)+1)
		if best == "" || d < at {
			best, at = n, d
		}
	}
	return best
}

// distance is Levenshtein's: the least number of insertions, deletions and
// replacements of bytes that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
