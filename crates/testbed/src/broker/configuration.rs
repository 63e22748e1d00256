//! The configuration of a node: its ports, certificate, users, and queues.

use super::{ADMINISTRATOR, READER, SECRET, SECRET_HASH, VHOST};
use crate::authority::{Authority, Flaw};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

pub(super) fn configure(folder: &Path, port: u16, tls_port: u16, authority: &Authority) {
    let identity = authority.identity(Flaw::None);
    let certificate = write(folder, "server.pem", &identity.certificate);
    let key = write(folder, "server.key", &identity.key);
    let definitions = write(folder, "definitions.json", &definitions(VHOST).to_string());
    write(folder, "env.conf", "");
    write(folder, "plugins", "[].\n");
    write(
        folder,
        "rabbitmq.conf",
        &format!(
            "handshake_timeout = 120000\n\
             listeners.tcp.1 = 127.0.0.1:{port}\n\
             listeners.ssl.1 = 127.0.0.1:{tls_port}\n\
             ssl_options.cacertfile = {}\n\
             ssl_options.certfile = {certificate}\n\
             ssl_options.keyfile = {key}\n\
             load_definitions = {definitions}\n\
             log.console = true\n\
             log.console.level = warning\n\
             log.file = false\n\
             disk_free_limit.absolute = 1MB\n",
            authority.ca_file().display()
        ),
    );
}

/// Writes a file and returns its path.
fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

pub(super) fn deployed(file: &str) -> serde_json::Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rabbitmq");
    let text = std::fs::read_to_string(Path::new(folder).join(file));
    serde_json::from_str(&text.expect("the definitions")).expect("JSON")
}

/// Sends a request as the administrator to the HTTP API of a node on this machine.
pub(super) fn post(port: u16, path: &str, body: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the HTTP API");
    let login = data_encoding::BASE64.encode(format!("{ADMINISTRATOR}:{SECRET}").as_bytes());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
}

/// Returns the definitions that an administrator imports, with a secret for each user, two users
/// for the tests, and another name of the virtual host.
pub(super) fn definitions(vhost: &str) -> serde_json::Value {
    let text = deployed("definitions.json").to_string();
    let text = text.replace(
        &format!("\"vhost\":\"{VHOST}\""),
        &format!("\"vhost\":\"{vhost}\""),
    );
    let mut all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    all["vhosts"][0]["name"] = vhost.into();
    let users = all["users"].as_array_mut().expect("users");
    for (name, tags) in [(ADMINISTRATOR, "administrator"), (READER, "")] {
        users.push(json!({
            "name": name, "tags": tags, "hashing_algorithm": "rabbit_password_hashing_sha256"
        }));
    }
    for user in users {
        user["password_hash"] = SECRET_HASH.into();
    }
    let rights = all["permissions"].as_array_mut().expect("permissions");
    for (user, writes) in [(ADMINISTRATOR, ".*"), (READER, "^$")] {
        rights.push(json!({
            "user": user, "vhost": vhost, "configure": writes, "write": writes, "read": ".*"
        }));
    }
    all
}
