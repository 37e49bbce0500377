-- Runs once, in a new volume: the role of all processes is no superuser, and the superuser has no password for TCP.
\set password `cat /run/secrets/postgres-password`
CREATE ROLE nightdesk LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';
CREATE DATABASE nightdesk OWNER nightdesk;
ALTER ROLE postgres PASSWORD NULL;
