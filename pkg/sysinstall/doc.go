// Package sysinstall installs programs with the system's package manager: those that tests and development need beside Go, such as Postgres.
//
// It promises to change the machine only where that was asked for and is allowed: apt-get, dnf and apk as root, and brew as anybody
// else. Where it may not or cannot, its error says what a person would type. It installs what the package manager has; it checks neither the
// version nor that the program works, which is for the caller to do.
//
// It does not belong into a service that serves for real, and imports nothing but the standard library.
package sysinstall
