#!/usr/bin/env bash
# Gives each service a database and a role of its own, which can enter no other. The image runs it once, when the data
# folder is new; run by hand on another server it needs psql's usual PG… variables of a superuser.
# Passwords come from the environment and are read by psql itself, so that no process list shows them.
set -euo pipefail

for service in order payment shipping; do
	export ROLE="$service"
	variable="${service^^}_DATABASE_PASSWORD"
	export ROLE_PASSWORD="${!variable:?}"
	psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\getenv name ROLE
\getenv password ROLE_PASSWORD
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
