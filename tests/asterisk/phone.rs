//! A phone, or a carrier, that a scenario controls. The phone uses SIP over UDP and sends no sound.
//!
//! The phone answers some requests automatically (`BYE`, `CANCEL`, re-`INVITE`). The scenario
//! decides when the phone rings, answers, refuses, holds, and hangs up.

use crate::line::{Dialog, Line, State};
use crate::sip::{self, Message};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Calls that can ring at one phone before the scenario handles them.
const WAITING_MAX: usize = 32;

/// The part of a phone that its lines share.
pub struct Socket {
    udp: UdpSocket,
    /// The port to which Asterisk sends sound, which is ignored.
    sound: UdpSocket,
    /// The address of Asterisk.
    pub pbx: SocketAddr,
    /// The name of the phone's endpoint in Asterisk.
    pub user: String,
    dialogs: Mutex<BTreeMap<String, Arc<Dialog>>>,
}

/// A phone of an employee, or a carrier.
pub struct Phone {
    socket: Arc<Socket>,
    calls: mpsc::Receiver<Line>,
    reader: JoinHandle<()>,
}

impl Socket {
    /// Returns the phone's SIP port.
    pub fn port(&self) -> u16 {
        self.udp.local_addr().map_or(0, |address| address.port())
    }

    /// Returns the phone's SIP address.
    pub fn contact(&self) -> String {
        format!("<sip:{}@127.0.0.1:{}>", self.user, self.port())
    }

    /// Returns the phone's SDP offer. `direction` is `sendrecv` or `sendonly`.
    pub fn sdp(&self, direction: &str) -> String {
        let port = self.sound.local_addr().map_or(9, |address| address.port());
        sip::sdp(port, direction)
    }

    /// Sends a message to Asterisk.
    pub async fn send(&self, text: &str) -> Result<()> {
        self.udp.send_to(text.as_bytes(), self.pbx).await?;
        Ok(())
    }

    /// Registers a dialog, so later messages of the call find it.
    pub fn enter(&self, dialog: &Arc<Dialog>) {
        let mut dialogs = self.dialogs.lock().unwrap_or_else(PoisonError::into_inner);
        dialogs.insert(dialog.call_id.clone(), Arc::clone(dialog));
    }

    fn dialog(&self, call_id: &str) -> Option<Arc<Dialog>> {
        let dialogs = self.dialogs.lock().unwrap_or_else(PoisonError::into_inner);
        dialogs.get(call_id).cloned()
    }

    async fn answer(&self, request: &Message, status: &str, body: Option<&str>) -> Result<()> {
        let text = request.answer(status, "none", &self.contact(), body);
        self.send(&text).await
    }

    /// Handles a message. Returns the line of a new call.
    async fn take(self: &Arc<Self>, message: Message) -> Result<Option<Line>> {
        let call_id = message.must("call-id")?.to_owned();
        let known = self.dialog(&call_id);
        if let Some(status) = message.status() {
            if let Some(dialog) = known {
                self.answered(&dialog, &message, status).await?;
            }
            return Ok(None);
        }
        let (number, method) = message.cseq()?;
        match (method, known) {
            ("INVITE", None) => {
                let dialog = Arc::new(Dialog::from_invite(&message)?);
                self.enter(&dialog);
                // Without this answer, a caller could not cancel.
                self.answer(&message, "100 Trying", None).await?;
                return Ok(Some(Line::new(dialog, Arc::clone(self))));
            }
            // The `INVITE` is repeated because the call is not answered yet.
            ("INVITE", Some(dialog)) if dialog.is_first_cseq(number) => {}
            ("INVITE" | "UPDATE", Some(_)) => {
                let sdp = self.sdp("sendrecv");
                self.answer(&message, "200 OK", Some(&sdp)).await?;
            }
            ("CANCEL", Some(dialog)) => {
                self.answer(&message, "200 OK", None).await?;
                if let Some(refusal) = dialog.cancel(&self.contact()) {
                    self.send(&refusal).await?;
                }
            }
            ("BYE", Some(dialog)) => {
                self.answer(&message, "200 OK", None).await?;
                dialog.set_state(State::HungUp);
            }
            ("NOTIFY", Some(dialog)) => {
                self.answer(&message, "200 OK", None).await?;
                let state = message.header("subscription-state").unwrap_or_default();
                // The other side was transferred, so the phone hangs up automatically.
                if state.starts_with("terminated") && !dialog.has_ended() {
                    self.send(&dialog.bye(self)).await?;
                }
            }
            ("ACK", Some(dialog)) => dialog.record_ack(),
            ("ACK", None) => {}
            (_, None) => self.answer(&message, "481 No Such Call", None).await?,
            (_, Some(_)) => self.answer(&message, "200 OK", None).await?,
        }
        Ok(None)
    }

    /// Handles an answer to a request of the phone.
    async fn answered(&self, dialog: &Dialog, answer: &Message, status: u16) -> Result<()> {
        let (number, method) = answer.cseq()?;
        if method == "INVITE" && status >= 200 {
            let ack = dialog.ack(answer, status, self.port())?;
            self.send(&ack).await?;
        }
        if dialog.is_first_cseq(number) && method == "INVITE" {
            match status {
                180..=189 => dialog.record_ringing(),
                200..=299 => dialog.record_answer(answer)?,
                300.. => dialog.set_state(State::Refused(status)),
                _ => {}
            }
        }
        if status >= 200 {
            dialog.record_status(number, status);
        }
        Ok(())
    }
}

impl Phone {
    /// Creates a phone that is `user` at the Asterisk at `pbx`.
    pub async fn new(user: &str, pbx: SocketAddr) -> Result<Self> {
        let socket = Arc::new(Socket {
            udp: UdpSocket::bind("127.0.0.1:0").await?,
            sound: UdpSocket::bind("127.0.0.1:0").await?,
            pbx,
            user: user.to_owned(),
            dialogs: Mutex::default(),
        });
        let (ring, calls) = mpsc::channel(WAITING_MAX);
        let reader = tokio::spawn(listen(Arc::clone(&socket), ring));
        Ok(Self {
            socket,
            calls,
            reader,
        })
    }

    /// Returns the phone's SIP port.
    pub fn port(&self) -> u16 {
        self.socket.port()
    }

    /// Dials a number. `caller` is the number and name that a carrier shows of its customer.
    pub async fn dial(&self, number: &str, caller: Option<&str>) -> Result<Line> {
        Line::dial(Arc::clone(&self.socket), number, caller).await
    }

    /// Waits for the next incoming call, without answering it.
    pub async fn next_call(&mut self) -> Result<Line> {
        let call = crate::wait::finish_in_time("a call", self.calls.recv()).await;
        let call = call.with_context(|| format!("at {}", self.socket.user))?;
        call.with_context(|| format!("{} listens no more", self.socket.user))
    }

    /// Forgets the calls of a finished scenario.
    pub fn forget(&mut self) {
        while self.calls.try_recv().is_ok() {}
        let dialogs = &self.socket.dialogs;
        dialogs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn listen(socket: Arc<Socket>, ring: mpsc::Sender<Line>) {
    let mut buffer = vec![0; 65_535];
    while let Ok((length, _)) = socket.udp.recv_from(&mut buffer).await {
        // This is a report (RTCP) on another phone's sound, which goes to the port above its sound
        // port.
        if !buffer[0].is_ascii_uppercase() {
            continue;
        }
        let taken = async {
            let message = Message::read(&buffer[..length])?;
            if let Some(line) = socket.take(message).await? {
                let user = &socket.user;
                if ring.try_send(line).is_err() {
                    bail!("too many calls ring at {user}");
                }
            }
            Ok(())
        };
        if let Err(error) = taken.await {
            eprintln!("{}: {error:#}", socket.user);
        }
    }
}
