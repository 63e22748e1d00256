//! Error messages for rejections by a broker, which say what was rejected, where, and which command
//! fixes it.

use crate::{Error, LineError, QueueSource, Target, url::Broker};
use callbridge_call::peer_text::{peer_text, redacted_peer_text};
use callbridge_call::shell::quoted;
use lapin::ErrorKind;
use std::time::Duration;

/// AMQP's reply code for a missing permission.
pub const ACCESS_REFUSED: u16 = 403;
/// AMQP's reply code for a queue or exchange that doesn't exist.
pub const NOT_FOUND: u16 = 404;
/// AMQP's reply code for a queue that was declared with different arguments.
pub const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;
const NOT_IMPLEMENTED: u16 = 540;

/// Returns the broker's reply code and text if it rejected something.
pub fn reply(error: &lapin::Error) -> Option<(u16, String)> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => {
            let message = peer_text(error.get_message().to_string().as_bytes());
            Some((error.get_id(), message))
        }
        _ => None,
    }
}

pub(super) fn is_not_found(error: &lapin::Error) -> bool {
    reply(error).is_some_and(|(code, _)| code == NOT_FOUND)
}

/// Returns the broker's reply code and text with the login's password removed. [`reply`] shortens
/// long texts, but AMQP's texts are never long enough for the password to be cut in half.
fn redacted_reply(target: &Target, error: &lapin::Error) -> Option<(u16, String)> {
    let (code, text) = reply(error)?;
    Some((code, target.redactor.redact(&text)))
}

/// Describes a failed connection or login, including the command that fixes it.
pub(super) fn connect_error(target: &Target, broker: &Broker, error: &lapin::Error) -> Error {
    let user = &broker.user;
    let word = quoted(&broker.vhost);
    match redacted_reply(target, error) {
        Some((ACCESS_REFUSED, text)) => target.right_error(format!(
            "login refused ({text}); check the user in the URL and its secret"
        )),
        Some((NOT_ALLOWED, text)) => target.right_error(format!(
            "{text}; create the virtual host and give the user its rights: rabbitmqctl add_vhost \
             {word} && rabbitmqctl set_permissions -p {word} {} '' '' '.*'",
            quoted(user)
        )),
        Some((_, text)) => target.not_that_error(text),
        None => line_error(target, broker, error),
    }
}

/// Describes why an open connection ended.
pub(super) fn line_error(target: &Target, broker: &Broker, error: &lapin::Error) -> Error {
    match error.kind() {
        ErrorKind::IOError(error) => target.io_error(error),
        ErrorKind::MissingHeartbeatError => {
            let quiet = Duration::from_secs(2 * u64::from(broker.heartbeat));
            target.error(LineError::Silent(quiet))
        }
        ErrorKind::ProtocolError(error) => {
            let text = error.get_message().to_string();
            target.closed_error(redacted_peer_text(text.as_bytes(), &target.redactor))
        }
        _ => target.closed_error(error.to_string()),
    }
}

/// Describes why the queue couldn't be found or declared, including the command that fixes it.
pub(super) fn find_error(target: &Target, source: &QueueSource, error: &lapin::Error) -> Error {
    let QueueSource { broker, queue, .. } = source;
    let vhost = &broker.vhost;
    match redacted_reply(target, error) {
        Some((NOT_FOUND, text)) if text.contains("no exchange") => target.not_that_error(format!(
            "{text}; create the exchange, or correct exchange= in the URL"
        )),
        Some((NOT_FOUND, _)) => {
            let command = declare_command(vhost, queue);
            target.not_that_error(format!(
                "there is no queue {queue} in virtual host {vhost}; create it: {command}, or give \
                 declare=yes"
            ))
        }
        Some((ACCESS_REFUSED, text)) => target.right_error(format!(
            "{text}; check the user's rights: rabbitmqctl list_user_permissions {}",
            quoted(&broker.user)
        )),
        Some((_, text)) => target.not_that_error(format!("queue {queue}: {text}")),
        None => line_error(target, broker, error),
    }
}

fn admin(vhost: &str) -> String {
    if vhost == "/" {
        "rabbitmqadmin".to_owned()
    } else {
        format!("rabbitmqadmin {}", quoted(&format!("--vhost={vhost}")))
    }
}

/// Returns the command that creates a durable queue.
pub fn declare_command(vhost: &str, queue: &str) -> String {
    let name = quoted(&format!("name={queue}"));
    format!("{} declare queue {name} durable=true", admin(vhost))
}

/// Describes a queue that already has another consumer.
pub(super) fn occupied_error(target: &Target, source: &QueueSource, text: &str) -> Error {
    target.not_that_error(format!(
        "queue {} has another consumer ({text}), but only one is allowed; stop the other one, or \
         wait until the broker notices that it is gone",
        source.queue
    ))
}

/// Describes why the queue couldn't be consumed, which is either an exclusive consumer or an error
/// as in [`find_error`].
pub(super) fn consume_error(target: &Target, source: &QueueSource, error: &lapin::Error) -> Error {
    match redacted_reply(target, error) {
        Some((ACCESS_REFUSED, text)) if text.contains("exclusive") => {
            occupied_error(target, source, &text)
        }
        Some((NOT_IMPLEMENTED, text)) => target.not_that_error(format!(
            "queue {} cannot have an exclusive consumer ({text}); use a classic durable queue",
            source.queue
        )),
        Some(_) | None => find_error(target, source, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpEndpoint;
    use callbridge_call::redact::Redactor;
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

    #[test]
    fn echoed_password_is_not_in_the_message() {
        let target = Target {
            endpoint: TcpEndpoint {
                host: "broker".to_owned(),
                port: 5672,
                tls: false,
            },
            ca_file: None,
            within: Duration::from_secs(1),
            redactor: Redactor::new(["secret word"]),
        };
        let broker = Broker {
            endpoint: target.endpoint.clone(),
            others: Vec::new(),
            user: "bridge".to_owned(),
            vhost: "/".to_owned(),
            heartbeat: 10,
        };
        let text = "no secret%20word, no secret word";
        for kind in [
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED),
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED),
            AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED),
        ] {
            let error = AMQPError::new(kind, text.into());
            let error: lapin::Error = ErrorKind::ProtocolError(error).into();
            let shown = connect_error(&target, &broker, &error).to_string();
            assert!(shown.contains("no [redacted], no [redacted]"), "{shown}");
            let shown = line_error(&target, &broker, &error).to_string();
            assert!(shown.contains("no [redacted], no [redacted]"), "{shown}");
        }
    }

    #[test]
    fn rabbitmqadmin_commands_quote_names_for_a_shell() {
        assert_eq!(
            declare_command("/", "dead letters"),
            "rabbitmqadmin declare queue 'name=dead letters' durable=true"
        );
        assert_eq!(
            declare_command("it's", "$(id)"),
            r"rabbitmqadmin '--vhost=it'\''s' declare queue 'name=$(id)' durable=true"
        );
    }
}
