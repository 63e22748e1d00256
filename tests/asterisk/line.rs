//! A call of a phone: its dialog with Asterisk, and the actions of the person on the phone.

use crate::phone::Socket;
use crate::sip::{self, Message};
use crate::wait::{self, finish_in_time};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Dialed or incoming, and not answered.
    Waiting,
    /// The other side rings, or plays something before it answers.
    Ringing,
    /// Answered.
    Up,
    /// The other side refused with this status.
    Refused(u16),
    /// The other side canceled before this side answered.
    Cancelled,
    /// The other side hung up.
    HungUp,
    /// This side ended the call.
    Left,
}

impl State {
    fn ended(self) -> bool {
        match self {
            Self::Waiting | Self::Ringing | Self::Up => false,
            Self::Refused(_) | Self::Cancelled | Self::HungUp | Self::Left => true,
        }
    }
}

/// The values that both sides of a call have agreed on.
#[derive(Clone, Debug)]
struct Facts {
    /// This side's name with its tag, as in `From` of its requests.
    ours: String,
    /// The other side's name, as in `To` of this side's requests.
    theirs: String,
    /// The target of this side's requests.
    target: String,
    /// The number of the last request.
    cseq: u32,
    /// The `INVITE` of an incoming call.
    invite: Option<Message>,
    /// The branch that identifies this side's `INVITE`.
    branch: String,
}

/// A dialog. The phone's reader and the scenario's line share it.
pub struct Dialog {
    /// Its `Call-ID`.
    pub call_id: String,
    /// `CSeq` of the `INVITE` that began it.
    first: u32,
    facts: Mutex<Facts>,
    state: watch::Sender<State>,
    acknowledged: watch::Sender<bool>,
    answers: watch::Sender<BTreeMap<u32, u16>>,
}

fn tag() -> String {
    Uuid::new_v4().simple().to_string()
}

fn branch() -> String {
    format!("z9hG4bK{}", tag())
}

impl Dialog {
    fn new(call_id: String, first: u32, facts: Facts) -> Self {
        Self {
            call_id,
            first,
            facts: Mutex::new(facts),
            state: watch::Sender::new(State::Waiting),
            acknowledged: watch::Sender::new(false),
            answers: watch::Sender::new(BTreeMap::new()),
        }
    }

    /// Creates the dialog of an incoming call.
    pub fn from_invite(invite: &Message) -> Result<Self> {
        let facts = Facts {
            ours: format!("{};tag={}", invite.must("to")?, tag()),
            theirs: invite.must("from")?.to_owned(),
            target: invite.contact().context("no Contact")?.to_owned(),
            cseq: 100,
            invite: Some(invite.clone()),
            branch: branch(),
        };
        let (first, _) = invite.cseq()?;
        Ok(Self::new(invite.must("call-id")?.to_owned(), first, facts))
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if `cseq` is the number of the `INVITE` that began the dialog.
    pub fn is_first_cseq(&self, cseq: u32) -> bool {
        self.first == cseq
    }

    /// Changes the state of the call. A call that has ended keeps its state.
    pub fn set_state(&self, next: State) {
        self.state.send_if_modified(|state| {
            let changes = !state.ended() && *state != next;
            if changes {
                *state = next;
            }
            changes
        });
    }

    /// Records that the other side rings.
    pub fn record_ringing(&self) {
        let waits = *self.state.borrow() == State::Waiting;
        if waits {
            self.set_state(State::Ringing);
        }
    }

    /// Records that the other side has answered.
    pub fn record_answer(&self, answer: &Message) -> Result<()> {
        let mut facts = self.facts();
        facts.theirs = answer.must("to")?.to_owned();
        if let Some(contact) = answer.contact() {
            facts.target = contact.to_owned();
        }
        drop(facts);
        self.set_state(State::Up);
        Ok(())
    }

    /// Records that this side's answer has arrived.
    pub fn record_ack(&self) {
        self.acknowledged.send_replace(true);
    }

    /// Records the final answer to a request.
    pub fn record_status(&self, cseq: u32, status: u16) {
        self.answers.send_modify(|all| {
            all.insert(cseq, status);
        });
    }

    /// Records that the other side canceled. Returns the refusal to send.
    pub fn cancel(&self, contact: &str) -> Option<String> {
        let refusal = self.reply("487 Request Terminated", contact, None);
        self.set_state(State::Cancelled);
        refusal
    }

    fn reply(&self, status: &str, contact: &str, body: Option<&str>) -> Option<String> {
        let facts = self.facts();
        let (_, tag) = facts.ours.rsplit_once(";tag=")?;
        let invite = facts.invite.as_ref()?;
        Some(invite.answer(status, tag, contact, body))
    }

    /// Returns the `ACK` of an answer to an `INVITE`. For a refusal, it belongs to the same
    /// transaction.
    pub fn ack(&self, answer: &Message, status: u16, port: u16) -> Result<String> {
        let facts = self.facts();
        let (cseq, _) = answer.cseq()?;
        let branch = if status < 300 {
            branch()
        } else {
            facts.branch.clone()
        };
        let target = if status < 300 { answer.contact() } else { None };
        let headers = [
            (
                "Via",
                format!("SIP/2.0/UDP 127.0.0.1:{port};branch={branch}"),
            ),
            ("From", facts.ours.clone()),
            ("To", answer.must("to")?.to_owned()),
            ("Call-ID", self.call_id.clone()),
            ("CSeq", format!("{cseq} ACK")),
        ];
        let headers = headers
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let target = target.unwrap_or(&facts.target);
        Ok(sip::request("ACK", target, &headers, None))
    }

    /// Returns `true` if either side has ended the call.
    pub fn has_ended(&self) -> bool {
        self.state.borrow().ended()
    }

    /// Returns the `BYE` of a phone that hangs up automatically.
    pub fn bye(&self, socket: &Socket) -> String {
        self.set_state(State::Left);
        self.next("BYE", socket, &[], None).1
    }

    /// Returns the next request of the dialog and its number. A `CANCEL` has the number of its
    /// `INVITE`.
    fn next(
        &self,
        method: &str,
        socket: &Socket,
        more: &[(&str, &str)],
        body: Option<(&str, &str)>,
    ) -> (u32, String) {
        let mut facts = self.facts();
        let (cseq, branch) = if method == "CANCEL" {
            (self.first, facts.branch.clone())
        } else {
            facts.cseq += 1;
            (facts.cseq, branch())
        };
        if method == "INVITE" {
            facts.branch.clone_from(&branch);
        }
        let port = socket.port();
        let via = format!("SIP/2.0/UDP 127.0.0.1:{port};branch={branch};rport");
        let (contact, numbered) = (socket.contact(), format!("{cseq} {method}"));
        let mut headers = vec![
            ("Via", via.as_str()),
            ("From", &facts.ours),
            ("To", &facts.theirs),
            ("Call-ID", &self.call_id),
            ("CSeq", &numbered),
            ("Contact", &contact),
        ];
        headers.extend_from_slice(more);
        (cseq, sip::request(method, &facts.target, &headers, body))
    }
}

/// A call that a scenario controls.
pub struct Line {
    dialog: Arc<Dialog>,
    socket: Arc<Socket>,
}

impl Line {
    /// Creates the line of a call that has reached a phone.
    pub fn new(dialog: Arc<Dialog>, socket: Arc<Socket>) -> Self {
        Self { dialog, socket }
    }

    /// Dials from a phone.
    pub async fn dial(socket: Arc<Socket>, number: &str, caller: Option<&str>) -> Result<Self> {
        let (user, port) = (&socket.user, socket.port());
        let target = format!("sip:{number}@{}", socket.pbx);
        let facts = Facts {
            ours: format!("<sip:{user}@127.0.0.1:{port}>;tag={}", tag()),
            theirs: format!("<{target}>"),
            target,
            cseq: 0,
            invite: None,
            branch: branch(),
        };
        let dialog = Arc::new(Dialog::new(tag(), 1, facts));
        socket.enter(&dialog);
        let identity = caller.unwrap_or_default();
        let asserted = [("P-Asserted-Identity", identity)];
        let more = if caller.is_some() { &asserted[..] } else { &[] };
        let sdp = socket.sdp("sendrecv");
        let body = Some(("application/sdp", sdp.as_str()));
        let (_, text) = dialog.next("INVITE", &socket, more, body);
        socket.send(&text).await?;
        Ok(Self { dialog, socket })
    }

    fn state(&self) -> State {
        *self.dialog.state.borrow()
    }

    async fn reply(&self, status: &str, body: Option<&str>) -> Result<()> {
        let text = self.dialog.reply(status, &self.socket.contact(), body);
        self.socket.send(&text.context("nobody called us")?).await
    }

    /// Returns the caller, as the display shows it.
    pub fn caller(&self) -> String {
        self.dialog.facts().theirs.clone()
    }

    /// Lets the phone ring.
    pub async fn ring(&self) -> Result<()> {
        self.dialog.record_ringing();
        self.reply("180 Ringing", None).await
    }

    /// Answers the call. Returns when Asterisk has acknowledged it.
    pub async fn answer(&self) -> Result<()> {
        let sdp = self.socket.sdp("sendrecv");
        self.reply("200 OK", Some(&sdp)).await?;
        let mut known = self.dialog.acknowledged.subscribe();
        finish_in_time("an ACK", known.wait_for(|known| *known)).await??;
        self.dialog.set_state(State::Up);
        Ok(())
    }

    /// Refuses the call with `486 Busy Here`, `603 Decline`, or `503 Service Unavailable`.
    pub async fn refuse(&self, status: &str) -> Result<()> {
        self.reply(status, None).await?;
        self.dialog.set_state(State::Left);
        Ok(())
    }

    /// Forwards the caller to another number.
    pub async fn forward(&self, number: &str) -> Result<()> {
        let contact = format!("<sip:{number}@{}>", self.socket.pbx);
        let text = self.dialog.reply("302 Moved Temporarily", &contact, None);
        self.socket.send(&text.context("nobody called us")?).await?;
        self.dialog.set_state(State::Left);
        Ok(())
    }

    /// Waits until the state meets a condition. `what` names the condition.
    async fn wait_until(&self, what: &str, holds: impl Fn(State) -> bool) -> Result<State> {
        let mut state = self.dialog.state.subscribe();
        let user = &self.socket.user;
        let reached = finish_in_time(what, state.wait_for(|state| holds(*state))).await;
        let reached = *reached.with_context(|| format!("{user} is {:?}", self.state()))??;
        Ok(reached)
    }

    /// Waits until the far end rings.
    pub async fn wait_until_ringing(&self) -> Result<()> {
        let state = self.wait_until("ringing", |state| state != State::Waiting);
        match state.await? {
            State::Ringing | State::Up => Ok(()),
            other => bail!("{} is {other:?} instead of ringing", self.socket.user),
        }
    }

    /// Waits until the far end has answered.
    pub async fn wait_until_up(&self) -> Result<()> {
        let state = self.wait_until("an answer", |state| state == State::Up || state.ended());
        match state.await? {
            State::Up => Ok(()),
            other => bail!("{} is {other:?} instead of answered", self.socket.user),
        }
    }

    /// Waits until the other side has ended the call.
    pub async fn wait_until_over(&self) -> Result<()> {
        self.wait_until("the end", State::ended).await.map(drop)
    }

    /// Lets the call continue for this time. If the call ends before, the scenario has failed.
    pub async fn continue_for(&self, span: Duration) -> Result<()> {
        let mut state = self.dialog.state.subscribe();
        let before = self.state();
        match wait::wait_at_most(span, state.wait_for(|state| state.ended())).await {
            None => Ok(()),
            Some(ended) => {
                let ended = *ended?;
                bail!("{}, {before:?}, ended: {ended:?}", self.socket.user)
            }
        }
    }

    /// Sends a request in the call and waits for the answer.
    async fn send_request(
        &self,
        method: &str,
        more: &[(&str, &str)],
        body: Option<(&str, &str)>,
    ) -> Result<u16> {
        let mut answers = self.dialog.answers.subscribe();
        let (cseq, text) = self.dialog.next(method, &self.socket, more, body);
        self.socket.send(&text).await?;
        let answered = answers.wait_for(|all| all.contains_key(&cseq));
        let answers = finish_in_time(method, answered).await??;
        Ok(answers.get(&cseq).copied().unwrap_or_default())
    }

    /// Hangs up.
    pub async fn hang_up(&self) -> Result<()> {
        if self.state().ended() {
            bail!("{} is {:?} already", self.socket.user, self.state());
        }
        self.dialog.set_state(State::Left);
        self.send_request("BYE", &[], None).await.map(drop)
    }

    /// Cancels before the other side has answered.
    pub async fn cancel(&self) -> Result<()> {
        let (_, text) = self.dialog.next("CANCEL", &self.socket, &[], None);
        self.socket.send(&text).await?;
        self.wait_until_over().await
    }

    /// Cancels or hangs up, whichever is right at this moment. The answer can be on its way.
    pub async fn cancel_or_hang_up(&self) -> Result<()> {
        if self.state() == State::Up {
            return self.hang_up().await;
        }
        let (_, text) = self.dialog.next("CANCEL", &self.socket, &[], None);
        self.socket.send(&text).await?;
        let decided = self.wait_until("an end or an answer", |state| state != State::Ringing);
        match decided.await? {
            State::Up => self.hang_up().await,
            _ended => Ok(()),
        }
    }

    /// Puts the other side on hold, as the phone's button does. Asterisk plays music.
    pub async fn hold(&self) -> Result<()> {
        self.offer("sendonly").await
    }

    /// Ends the hold.
    pub async fn resume(&self) -> Result<()> {
        self.offer("sendrecv").await
    }

    async fn offer(&self, direction: &str) -> Result<()> {
        let sdp = self.socket.sdp(direction);
        let body = Some(("application/sdp", sdp.as_str()));
        match self.send_request("INVITE", &[], body).await? {
            200..=299 => Ok(()),
            status => bail!("re-INVITE answered {status}"),
        }
    }

    /// Transfers the other side to a number (blind transfer by the phone).
    pub async fn transfer_to(&self, number: &str) -> Result<()> {
        self.refer(&format!("<sip:{number}@{}>", self.socket.pbx))
            .await
    }

    /// Transfers the other side to the other side of another call of this phone (attended
    /// transfer).
    pub async fn transfer_to_call(&self, other: &Self) -> Result<()> {
        let address = {
            let facts = other.dialog.facts();
            let (_, theirs) = facts.theirs.rsplit_once("tag=").context("no tag")?;
            let (_, ours) = facts.ours.rsplit_once("tag=").context("no tag")?;
            let (target, id) = (&facts.target, &other.dialog.call_id);
            format!("<{target}?Replaces={id}%3Bto-tag%3D{theirs}%3Bfrom-tag%3D{ours}>")
        };
        self.refer(&address).await
    }

    async fn refer(&self, address: &str) -> Result<()> {
        let by = self.socket.contact();
        let more = [("Refer-To", address), ("Referred-By", by.as_str())];
        match self.send_request("REFER", &more, None).await? {
            200..=299 => Ok(()),
            status => bail!("REFER answered {status}"),
        }
    }

    /// Presses these keys, one after the other.
    pub async fn press(&self, keys: &str) -> Result<()> {
        for (at, key) in keys.chars().enumerate() {
            // Asterisk plays a key for the time in the message. The next key can follow after that.
            if at > 0 {
                self.continue_for(Duration::from_millis(250)).await?;
            }
            let body = format!("Signal={key}\r\nDuration=100\r\n");
            let body = Some(("application/dtmf-relay", body.as_str()));
            let status = self.send_request("INFO", &[], body).await?;
            if status != 200 {
                bail!("INFO answered {status}");
            }
        }
        Ok(())
    }
}
