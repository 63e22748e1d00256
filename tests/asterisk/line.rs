//! One call of a telephone: its dialogue with Asterisk, and what a person does with it.

use crate::phone::Socket;
use crate::sip::{self, Message};
use crate::wait::{self, within};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Dialed, or calling us: nothing is answered.
    Waiting,
    /// The other side rings (or plays something before it answers).
    Ringing,
    /// Answered.
    Up,
    /// The other side refused with this status.
    Refused(u16),
    /// The other side gave up before we answered.
    Cancelled,
    /// The other side hung up.
    HungUp,
    /// We ended it.
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

/// What the two sides of a call have agreed on.
#[derive(Clone, Debug)]
struct Facts {
    /// Our name with our tag, as it stands in `From` of our requests.
    ours: String,
    /// Theirs, as it stands in `To` of our requests.
    theirs: String,
    /// Where our requests go to.
    target: String,
    /// Of our last request.
    cseq: u32,
    /// The `INVITE` that called us.
    invite: Option<Message>,
    /// What tells our own `INVITE` from others.
    branch: String,
}

/// A dialogue. The reader of the phone and the scenario's line share it.
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

    /// One that somebody else began.
    pub fn called(invite: &Message) -> Result<Self> {
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

    /// Whether this is the number of the `INVITE` that began it.
    pub fn began_with(&self, cseq: u32) -> bool {
        self.first == cseq
    }

    /// The call is in this state now; what has ended stays so.
    pub fn becomes(&self, next: State) {
        self.state.send_if_modified(|state| {
            let changes = !state.ended() && *state != next;
            if changes {
                *state = next;
            }
            changes
        });
    }

    /// The other side rings.
    pub fn rings(&self) {
        let waits = *self.state.borrow() == State::Waiting;
        if waits {
            self.becomes(State::Ringing);
        }
    }

    /// The other side has answered our call.
    pub fn is_up(&self, answer: &Message) -> Result<()> {
        let mut facts = self.facts();
        facts.theirs = answer.must("to")?.to_owned();
        if let Some(contact) = answer.contact() {
            facts.target = contact.to_owned();
        }
        drop(facts);
        self.becomes(State::Up);
        Ok(())
    }

    /// Our answer has arrived.
    pub fn acknowledged(&self) {
        self.acknowledged.send_replace(true);
    }

    /// A request of ours has its final answer.
    pub fn done(&self, cseq: u32, status: u16) {
        self.answers.send_modify(|all| {
            all.insert(cseq, status);
        });
    }

    /// The other side gives up before we answered: the refusal to send.
    pub fn cancelled(&self, contact: &str) -> Option<String> {
        let refusal = self.reply("487 Request Terminated", contact, None);
        self.becomes(State::Cancelled);
        refusal
    }

    fn reply(&self, status: &str, contact: &str, body: Option<&str>) -> Option<String> {
        let facts = self.facts();
        let (_, tag) = facts.ours.rsplit_once(";tag=")?;
        let invite = facts.invite.as_ref()?;
        Some(invite.answer(status, tag, contact, body))
    }

    /// The `ACK` of an answer to an `INVITE`: of a refusal it belongs to the same transaction.
    pub fn ack(&self, answer: &Message, status: u16, port: u16) -> Result<String> {
        let facts = self.facts();
        let (cseq, _) = answer.cseq()?;
        let branch = if status < 300 {
            branch()
        } else {
            facts.branch.clone()
        };
        let target = answer.contact().filter(|_| status < 300);
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

    /// Whether either side has ended it.
    pub fn has_ended(&self) -> bool {
        self.state.borrow().ended()
    }

    /// The `BYE` of a phone that hangs up by itself.
    pub fn bye(&self, socket: &Socket) -> String {
        self.becomes(State::Left);
        self.next("BYE", socket, &[], None).1
    }

    /// The next request inside the dialogue, and its number. A `CANCEL` has that of its `INVITE`.
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

/// A call in the hands of a scenario.
pub struct Line {
    dialog: Arc<Dialog>,
    socket: Arc<Socket>,
}

impl Line {
    /// A call that has reached a phone.
    pub fn new(dialog: Arc<Dialog>, socket: Arc<Socket>) -> Self {
        Self { dialog, socket }
    }

    /// Dials out of a phone.
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

    /// Who calls, as the display shows it.
    pub fn caller(&self) -> String {
        self.dialog.facts().theirs.clone()
    }

    /// Rings.
    pub async fn rings(&self) -> Result<()> {
        self.dialog.rings();
        self.reply("180 Ringing", None).await
    }

    /// Is answered: returns when Asterisk knows.
    pub async fn answers(&self) -> Result<()> {
        let sdp = self.socket.sdp("sendrecv");
        self.reply("200 OK", Some(&sdp)).await?;
        let mut known = self.dialog.acknowledged.subscribe();
        within("an ACK", known.wait_for(|known| *known)).await??;
        self.dialog.becomes(State::Up);
        Ok(())
    }

    /// Refuses: `486 Busy Here`, `603 Decline`, `503 Service Unavailable`.
    pub async fn refuses(&self, status: &str) -> Result<()> {
        self.reply(status, None).await?;
        self.dialog.becomes(State::Left);
        Ok(())
    }

    /// Sends the caller on to another number.
    pub async fn forwards(&self, number: &str) -> Result<()> {
        let contact = format!("<sip:{number}@{}>", self.socket.pbx);
        let text = self.dialog.reply("302 Moved Temporarily", &contact, None);
        self.socket.send(&text.context("nobody called us")?).await?;
        self.dialog.becomes(State::Left);
        Ok(())
    }

    /// Waits until the call is so.
    async fn until(&self, what: &str, holds: impl Fn(State) -> bool) -> Result<State> {
        let mut state = self.dialog.state.subscribe();
        let user = &self.socket.user;
        let reached = within(what, state.wait_for(|state| holds(*state))).await;
        let reached = *reached.with_context(|| format!("{user} is {:?}", self.state()))??;
        Ok(reached)
    }

    /// Waits until the far end rings.
    pub async fn is_ringing(&self) -> Result<()> {
        let state = self.until("ringing", |state| state != State::Waiting);
        match state.await? {
            State::Ringing | State::Up => Ok(()),
            other => bail!("{} is {other:?} instead of ringing", self.socket.user),
        }
    }

    /// Waits until the far end has answered.
    pub async fn is_up(&self) -> Result<()> {
        let state = self.until("an answer", |state| state == State::Up || state.ended());
        match state.await? {
            State::Up => Ok(()),
            other => bail!("{} is {other:?} instead of answered", self.socket.user),
        }
    }

    /// Waits until the other side has ended the call.
    pub async fn is_over(&self) -> Result<()> {
        self.until("the end", State::ended).await.map(drop)
    }

    /// The call goes on for so long; if it ends before, the scenario has failed.
    pub async fn goes_on(&self, span: Duration) -> Result<()> {
        let mut state = self.dialog.state.subscribe();
        let before = self.state();
        match wait::for_at_most(span, state.wait_for(|state| state.ended())).await {
            None => Ok(()),
            Some(ended) => {
                let ended = *ended?;
                bail!("{}, {before:?}, ended: {ended:?}", self.socket.user)
            }
        }
    }

    /// A request inside the call, until it has its answer.
    async fn asks(
        &self,
        method: &str,
        more: &[(&str, &str)],
        body: Option<(&str, &str)>,
    ) -> Result<u16> {
        let mut answers = self.dialog.answers.subscribe();
        let (cseq, text) = self.dialog.next(method, &self.socket, more, body);
        self.socket.send(&text).await?;
        let answered = answers.wait_for(|all| all.contains_key(&cseq));
        let answers = within(method, answered).await??;
        Ok(answers.get(&cseq).copied().unwrap_or_default())
    }

    /// Hangs up.
    pub async fn hangs_up(&self) -> Result<()> {
        if self.state().ended() {
            bail!("{} is {:?} already", self.socket.user, self.state());
        }
        self.dialog.becomes(State::Left);
        self.asks("BYE", &[], None).await.map(drop)
    }

    /// Gives up before the far end has answered.
    pub async fn gives_up(&self) -> Result<()> {
        let (_, text) = self.dialog.next("CANCEL", &self.socket, &[], None);
        self.socket.send(&text).await?;
        self.is_over().await
    }

    /// Ends it whichever way is right at this moment: the answer may be on its way.
    pub async fn gives_up_or_hangs_up(&self) -> Result<()> {
        if self.state() == State::Up {
            return self.hangs_up().await;
        }
        let (_, text) = self.dialog.next("CANCEL", &self.socket, &[], None);
        self.socket.send(&text).await?;
        let decided = self.until("an end or an answer", |state| state != State::Ringing);
        match decided.await? {
            State::Up => self.hangs_up().await,
            _ended => Ok(()),
        }
    }

    /// Puts the other side on hold, as the phone's own button does; Asterisk plays music.
    pub async fn holds(&self) -> Result<()> {
        self.offers("sendonly").await
    }

    /// Takes it back.
    pub async fn resumes(&self) -> Result<()> {
        self.offers("sendrecv").await
    }

    async fn offers(&self, direction: &str) -> Result<()> {
        let sdp = self.socket.sdp(direction);
        let body = Some(("application/sdp", sdp.as_str()));
        match self.asks("INVITE", &[], body).await? {
            200..=299 => Ok(()),
            status => bail!("re-INVITE answered {status}"),
        }
    }

    /// Hands the other side over to a number (blind transfer by the phone).
    pub async fn refers(&self, number: &str) -> Result<()> {
        self.refer(&format!("<sip:{number}@{}>", self.socket.pbx))
            .await
    }

    /// Hands the other side over to the far end of another call of this phone (attended transfer).
    pub async fn refers_to(&self, other: &Self) -> Result<()> {
        let address = {
            let facts = other.dialog.facts();
            let tag = |name: &str| name.rsplit_once("tag=").map(|(_, tag)| tag.to_owned());
            let theirs = tag(&facts.theirs).context("no tag")?;
            let ours = tag(&facts.ours).context("no tag")?;
            let (target, id) = (&facts.target, &other.dialog.call_id);
            format!("<{target}?Replaces={id}%3Bto-tag%3D{theirs}%3Bfrom-tag%3D{ours}>")
        };
        self.refer(&address).await
    }

    async fn refer(&self, address: &str) -> Result<()> {
        let by = self.socket.contact();
        let more = [("Refer-To", address), ("Referred-By", by.as_str())];
        match self.asks("REFER", &more, None).await? {
            200..=299 => Ok(()),
            status => bail!("REFER answered {status}"),
        }
    }

    /// Presses keys, one after the other.
    pub async fn presses(&self, keys: &str) -> Result<()> {
        for (at, key) in keys.chars().enumerate() {
            // Asterisk takes a key for as long as it says; the next may come then.
            if at > 0 {
                self.goes_on(Duration::from_millis(250)).await?;
            }
            let body = format!("Signal={key}\r\nDuration=100\r\n");
            let body = Some(("application/dtmf-relay", body.as_str()));
            let status = self.asks("INFO", &[], body).await?;
            if status != 200 {
                bail!("INFO answered {status}");
            }
        }
        Ok(())
    }
}
