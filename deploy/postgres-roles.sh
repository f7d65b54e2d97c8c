# Read once by the PostgreSQL image, when its volume is empty: the login role of docker-compose.yml and its database.
# Not the superuser: row-level security would not bind it. It may create roles, because the migrations make two of
# their own, which the processes act in.
psql --username "$POSTGRES_USER" --set ON_ERROR_STOP=1 --set password="$TOCSIN_DATABASE_PASSWORD" <<'SQL'
CREATE ROLE tocsin LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE tocsin OWNER tocsin;
SQL
