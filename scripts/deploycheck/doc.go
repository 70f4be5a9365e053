// Package deploycheck checks what is in deploy/ without a container engine: the compose file by the specification's own
// library, the Dockerfile by its stages, the broker's configuration by the broker's own parser, and the database script
// on a real Postgres server.
package deploycheck
