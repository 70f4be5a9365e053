// Package config reads a service's settings from its environment into one
// struct, and refuses what it does not know.
//
//	type Config struct {
//		HTTPAddr    string        `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080" doc:"where HTTP is served"`
//		DatabaseURL string        `env:"DATABASE_URL" prefix:"none" doc:"the service's own database"`
//		Credential  string        `env:"CREDENTIAL" secret:"true" doc:"what services show each other"`
//		Grace       time.Duration `env:"GRACE" envDefault:"20s" doc:"time for the work in hand at shutdown"`
//	}
//
//	cfg, err := config.Load[Config](config.Prefix, os.Environ())
//
// Each field with an env tag is a setting; its variable is the prefix and the
// tag, or the tag alone with prefix:"none", for names that everybody uses. Nested structs with
// envPrefix are followed. Parsing is that of github.com/caarlos0/env.
//
// Every setting must work when nothing is set: by its default or its zero value.
// A set variable that begins with the prefix and belongs to no known setting is
// an error that names the nearest known one, so a misspelt setting ends the
// start-up and is not found out in production.
//
// [Effective] gives the values in use for the log, without secrets;
// [Documentation] gives names, types, defaults and meanings for a page. Both
// come from the same struct, so neither can be out of date.
package config
