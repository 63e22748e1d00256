//! Refuses to send a password over TCP without TLS by any method other than SCRAM.
//!
//! Another program might listen on the server's port and ask for the password itself, or for a hash
//! of it that can be attacked. With SCRAM, it learns nothing that would let it log in.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The error message if the server asks for a password by another method.
pub(super) const REFUSED: &str = "the server asks for the password itself or for its MD5 hash, and \
                                  the connection has no TLS: set the method scram-sha-256 in \
                                  pg_hba.conf and give the role a new password, or use TLS \
                                  (ca-file=)";

/// Authentication request codes that would reveal the password: in cleartext, as crypt, or as MD5.
const REVEALING: [u32; 3] = [3, 4, 5];
/// The code that completes authentication.
const AUTHENTICATED: u32 = 0;
/// A message consists of its type, its length, and its content, which here starts with the code.
const LENGTH_END: usize = 5;
const CODE_END: usize = 9;

/// A connection to a server whose login is being watched.
#[derive(Debug)]
pub(super) struct ScramOnly<S> {
    stream: S,
    login: Login,
}

impl<S> ScramOnly<S> {
    pub(super) fn new(stream: S) -> Self {
        let login = Login::default();
        Self { stream, login }
    }
}

/// The server's messages so far.
#[derive(Debug, Default)]
struct Login {
    /// The start of the current message.
    head: Vec<u8>,
    /// Number of the current message's bytes so far.
    seen: usize,
    is_over: bool,
}

impl Login {
    /// Checks the next bytes from the server.
    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            if self.is_over {
                break;
            }
            self.seen += 1;
            if self.head.len() < CODE_END {
                self.head.push(*byte);
            }
            if let [b'R', _, _, _, _, code @ ..] = self.head.as_slice()
                && let Ok(code) = code.try_into().map(u32::from_be_bytes)
                && self.seen == CODE_END
            {
                if REVEALING.contains(&code) {
                    return Err(io::Error::other(REFUSED));
                }
                self.is_over = code == AUTHENTICATED;
            }
            if let Some([_, length @ ..]) = self.head.first_chunk::<LENGTH_END>() {
                let length = u32::from_be_bytes(*length) as usize;
                if self.seen > length {
                    self.head.clear();
                    self.seen = 0;
                }
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ScramOnly<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = &read {
            this.login.check(&buffer.filled()[before..])?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ScramOnly<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::postgres::{Access, PostgresUrl, Session};
    use callbridge_testbed::postgres::{Postgres, SECRET};

    /// Returns a server message with this authentication request code.
    fn request(code: u32, rest: &[u8]) -> Vec<u8> {
        let length = u32::try_from(8 + rest.len()).expect("short");
        let parts = [&b"R"[..], &length.to_be_bytes(), &code.to_be_bytes(), rest];
        parts.concat()
    }

    /// Feeds these messages to a login byte by byte.
    fn check_bytewise(messages: &[Vec<u8>]) -> io::Result<()> {
        let mut login = Login::default();
        let bytes = messages.concat();
        let mut bytes = bytes.chunks(1);
        bytes.try_for_each(|byte| login.check(byte))
    }

    #[test]
    fn only_requests_that_reveal_the_password_are_refused() {
        let scram = [
            request(10, b"SCRAM-SHA-256\0\0"),
            request(11, b"r=nonce"),
            request(12, b"v=proof"),
            request(0, b""),
        ];
        check_bytewise(&scram).expect("SCRAM");
        // Bytes after the login aren't messages about the password.
        check_bytewise(&[scram.concat(), request(3, b"")]).expect("over");
        for revealing in [request(3, b""), request(5, b"salt")] {
            check_bytewise(std::slice::from_ref(&revealing)).expect_err("the password");
            let error = check_bytewise(&[request(11, b"r=nonce"), revealing]);
            error.expect_err("the password after another request");
        }
    }

    #[test]
    fn password_without_tls_is_sent_only_by_scram() {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).expect("written");
        for (method, is_accepted) in [("scram-sha-256", true), ("password", false)] {
            let server = Postgres::start_with_login(method);
            let text = format!("{}&secret-file={}", server.url("s"), secret.display());
            let url = PostgresUrl::parse(&text).expect("a URL");
            match Session::open(&url, Access::Write, "test") {
                Ok(_) => assert!(is_accepted, "{method}"),
                Err(Error::Unusable(_, why)) => {
                    assert!(!is_accepted, "{method}: {why}");
                    assert_eq!(why, REFUSED);
                }
                Err(error) => panic!("{method}: {error}"),
            }
        }
    }
}
