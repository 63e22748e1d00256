//! The `--state` value for a database: `postgres://USER@HOST[:PORT][,HOST…]/DATABASE`.

use callbridge_model::secret_source::SecretPlace;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The schema if the URL has no `schema=`.
const SCHEMA: &str = "callbridge";
/// Maximum length of a schema's name in bytes. PostgreSQL truncates longer names.
const NAME_BYTES_MAX: usize = 63;
const KEYS: &str = "secret-file=, ca-file=, schema=";

/// A PostgreSQL database, and how to connect to it. It doesn't hold the password, which is read
/// from its file for each connection.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    config: Config,
    /// The password file, or `None` if the server doesn't ask for a password.
    pub secret: Option<SecretFile>,
    /// PEM file with root certificates that replace the system's (`ca-file=`).
    pub ca_file: Option<PathBuf>,
    /// Name of the schema that holds callbridge's tables.
    pub schema: String,
}

/// The password file (`secret-file=`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile(pub PathBuf);

impl SecretFile {
    pub(crate) fn place(&self) -> SecretPlace {
        SecretPlace::File(self.0.clone())
    }
}

impl PostgresUrl {
    /// Returns `true` if `text`, a value of `--state`, is a database rather than a folder.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Parses a URL. Errors never contain the value of a password.
    ///
    /// # Errors
    /// Returns an error if `text` isn't a URL of this form, has an unknown key, or contains a
    /// password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        if !Self::is_url(text) {
            return Err("a database is postgres://USER@HOST/DATABASE".to_owned());
        }
        let rest = base.split_once("://").map_or("", |(_, rest)| rest);
        let user = rest.rsplit_once('@').map(|(user, _)| user);
        match user {
            None | Some("") => {
                return Err("the user is missing: postgres://USER@HOST/DATABASE".to_owned());
            }
            Some(user) if user.contains(':') => {
                let fix = "a password must not be in the URL: write it to a file that only this \
                           user can read, and name the file with secret-file=FILE";
                return Err(fix.to_owned());
            }
            Some(_) => {}
        }
        // The library's message may quote the URL, which contains no password at this point.
        let mut config: Config = base.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            why.unwrap_or_else(|| error.to_string())
        })?;
        if config.get_hosts().is_empty() {
            return Err("the host is missing: postgres://USER@HOST/DATABASE".to_owned());
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err("the database is missing: postgres://USER@HOST/DATABASE".to_owned());
        }
        let mut secret = None;
        let mut ca_file = None;
        let mut schema = SCHEMA.to_owned();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| format!("{key}= is not UTF-8"))?;
            if value.is_empty() {
                return Err(format!("{key}= has no value"));
            }
            match key {
                "secret-file" => secret = Some(SecretFile(value.as_ref().into())),
                "ca-file" => ca_file = Some(value.as_ref().into()),
                "schema" => schema = value.into_owned(),
                _ => return Err(format!("{key}= is unknown: a database URL accepts {KEYS}")),
            }
        }
        if schema.len() > NAME_BYTES_MAX || schema.contains(['"', '\0']) {
            return Err(format!("schema={schema:?} is not the name of a schema"));
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let is_clear = ca_file.is_none() && config.get_hosts().iter().all(is_local);
        config.ssl_mode(if is_clear {
            SslMode::Disable
        } else {
            SslMode::Require
        });
        Ok(Self {
            config,
            secret,
            ca_file,
            schema,
        })
    }

    /// Returns the connection settings for each host, in the same order as in the URL, without the
    /// password. The session tries the hosts one by one, because the library has no deadline for a
    /// host that accepts a connection but doesn't respond.
    pub(crate) fn configs(&self) -> Vec<Config> {
        let all = &self.config;
        let mut configs = Vec::new();
        for (at, host) in all.get_hosts().iter().enumerate() {
            let mut config = Config::new();
            match host {
                Host::Tcp(name) => config.host(name),
                Host::Unix(path) => config.host_path(path),
            };
            config
                .port(self.port(at))
                .user(all.get_user().unwrap_or_default())
                .dbname(all.get_dbname().unwrap_or_default())
                .ssl_mode(all.get_ssl_mode())
                .target_session_attrs(all.get_target_session_attrs());
            configs.push(config);
        }
        configs
    }

    fn port(&self, host: usize) -> u16 {
        let ports = self.config.get_ports();
        ports.get(host).or(ports.first()).copied().unwrap_or(5432)
    }

    /// Returns `true` if the connection uses TLS, in which case the certificate must be valid for
    /// the host. Connections to this machine use TLS only with `ca-file=`.
    pub fn uses_tls(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }

    /// Returns the database the way messages refer to it: `postgres://db1,db2/callbridge`.
    pub fn place(&self) -> PathBuf {
        let mut hosts = Vec::new();
        for (at, host) in self.config.get_hosts().iter().enumerate() {
            let name = match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            };
            let port = self.port(at);
            if port == 5432 {
                hosts.push(name);
            } else {
                hosts.push(format!("{name}:{port}"));
            }
        }
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgres://{}/{database}", hosts.join(",")).into()
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PostgresUrl({}, schema {:?})",
            self.place().display(),
            self.schema
        )
    }
}

/// Returns `true` for a Unix socket, `localhost`, and loopback addresses. A name that resolves to
/// this machine doesn't count, because its address may change.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) if name == "localhost" => true,
        Host::Tcp(name) => {
            let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_with_all_keys_is_parsed() {
        let text = "postgres://callbridge@db1,db2:5433/calls?secret-file=/etc/s%20x&ca-file=/ca\
                    &schema=hub";
        let url = PostgresUrl::parse(text).expect("a URL");
        assert_eq!(url.secret, Some(SecretFile("/etc/s x".into())));
        assert_eq!(url.ca_file, Some("/ca".into()));
        assert_eq!(url.schema, "hub");
        assert!(url.uses_tls());
        assert_eq!(
            url.place().to_string_lossy(),
            "postgres://db1,db2:5433/calls"
        );
        let configs = url.configs();
        assert_eq!(configs.len(), 2);
        for (config, (host, port)) in configs.iter().zip([("db1", 5432), ("db2", 5433)]) {
            assert_eq!(config.get_user(), Some("callbridge"));
            assert_eq!(config.get_hosts(), [Host::Tcp(host.to_owned())]);
            assert_eq!(config.get_ports(), [port]);
        }
    }

    #[test]
    fn password_in_url_is_refused_and_not_quoted() {
        for text in [
            "postgres://me:hunter2@db/calls",
            "postgres://me:hunter2@db,db2/calls?schema=x",
            "postgres://me@x:hunter2@db/calls",
        ] {
            let error = PostgresUrl::parse(text).expect_err(text);
            assert!(error.contains("secret-file="), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn incomplete_or_unknown_url_parts_are_named_in_the_error() {
        for (text, word) in [
            ("/var/lib/callbridge", "postgres://"),
            ("postgres://db/calls", "user"),
            ("postgres://me@db", "database"),
            ("postgres://me@db/", "database"),
            ("postgres://me@/calls", "host"),
            (
                "postgres://me@db/calls?sslmode=disable",
                "sslmode= is unknown",
            ),
            ("postgres://me@db/calls?schema=", "schema= has no value"),
            ("postgres://me@db/calls?schema=a%22b", "not the name"),
        ] {
            let error = PostgresUrl::parse(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn url_requires_tls_except_for_this_machine() {
        for (host, tls) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("%2Frun%2Fpostgresql", false),
            ("db1", true),
            ("localhost,db1", true),
            ("10.0.0.1", true),
        ] {
            let url = PostgresUrl::parse(&format!("postgres://me@{host}/calls")).expect(host);
            assert_eq!(url.uses_tls(), tls, "{host}");
        }
        let url = PostgresUrl::parse("postgres://me@localhost/calls?ca-file=/ca.pem");
        assert!(url.expect("a URL").uses_tls());
    }
}
