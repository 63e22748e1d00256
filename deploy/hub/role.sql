-- Creates a hub's role, database, and schema. Run it once, on the primary, as the superuser:
--
--   sudo -u postgres psql -f role.sql
--   sudo -u postgres psql -c '\password callbridge'
--
-- The role can use its own schema and has no other permissions. If synchronous_standby_names is set and
-- no such standby is connected, every statement here waits for one, so connect it first.
\set ON_ERROR_STOP on
CREATE ROLE callbridge LOGIN;
CREATE DATABASE callbridge ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0;
REVOKE ALL ON DATABASE callbridge FROM PUBLIC;
GRANT CONNECT ON DATABASE callbridge TO callbridge;
\connect callbridge
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA callbridge AUTHORIZATION callbridge;
