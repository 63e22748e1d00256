//! Opens a broker's line. lapin sees no URL of ours: only what it needs, taken apart.

use super::words;
use crate::connect::{Target, client};
use crate::error::Error;
use crate::source::Secret;
use crate::url::Broker;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use secrecy::ExposeSecret;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A broker and what it takes to be let in.
#[derive(Clone, Debug)]
pub struct Login {
    /// Where and as whom.
    pub broker: Broker,
    /// The secret.
    pub secret: Secret,
    /// The environment variable to name when there is none.
    pub variable: &'static str,
    /// PEM certificates that replace the system's roots.
    pub ca_file: Option<PathBuf>,
    /// For the connection, the TLS greeting and the login together.
    pub within: Duration,
}

impl Login {
    pub(super) fn target(&self) -> Target {
        Target {
            endpoint: self.broker.endpoint.clone(),
            ca_file: self.ca_file.clone(),
            within: self.within,
        }
    }

    fn uri(&self) -> Result<AMQPUri, Error> {
        let secret = self.secret.read(self.variable)?;
        let Broker {
            endpoint,
            user,
            vhost,
            heartbeat,
        } = &self.broker;
        Ok(AMQPUri {
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: user.clone(),
                    password: secret.expose_secret().to_owned(),
                },
                host: endpoint.host.clone(),
                port: endpoint.port,
            },
            vhost: vhost.clone(),
            query: AMQPQueryString {
                heartbeat: Some(*heartbeat),
                ..AMQPQueryString::default()
            },
        })
    }

    /// Opens the line and logs in. It is not opened again by itself when it is lost.
    ///
    /// # Errors
    /// In words: no connection, TLS refused, login refused, no such virtual host.
    pub async fn open(&self) -> Result<Connection, Error> {
        let target = self.target();
        match tokio::time::timeout(self.within, self.connect(&target)).await {
            Ok(opened) => opened,
            Err(_) => Err(target.timed_out()),
        }
    }

    async fn connect(&self, target: &Target) -> Result<Connection, Error> {
        let uri = self.uri()?;
        let endpoint = self.broker.endpoint.clone();
        let tls = match endpoint.tls {
            true => Some(client(self.ca_file.clone()).await?),
            false => None,
        };
        let refused = |error: lapin::Error| words::connecting(target, &self.broker, &error);
        let address = (endpoint.host.as_str(), endpoint.port);
        let found = tokio::net::lookup_host(address).await;
        let found = found.map_err(|error| target.failed(&error))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let runtime = lapin::runtime::default_runtime().map_err(refused)?;
        let host = endpoint.host.clone();
        let connect = async move |_uri, runtime| {
            let stream = AsyncTcpStream::connect(&runtime, addresses.clone()).await?;
            match &tls {
                None => Ok(stream),
                Some(config) => Ok(stream.into_rustls(&config.clone().into(), &host).await?),
            }
        };
        let name = format!("callbridge {}", env!("CARGO_PKG_VERSION"));
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connection = Connection::connector(uri, runtime, connect, properties);
        connection.await.map_err(refused)
    }
}
