//! What can befall the chain: each has to be met.

use crate::strikes::Moment;

/// What befalls one step of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChainPath {
    /// The collector died before its message reached the broker.
    PublishLost,
    /// It died when the broker had it, and no confirm had come.
    PublishKept,
    /// It died with the confirm, which was not written.
    ConfirmUnwritten,
    /// The line was lost with the confirm on it.
    ConfirmLost,
    /// No broker answered.
    BrokerAway,
    /// The same call was read a second time from the stream.
    ReadTwice,
    /// A sender died with messages that were delivered, nothing of them written.
    DeliveredUnwritten,
    /// It died while calls and offset were written: none is there.
    CommitLost,
    /// The same, and all are there.
    CommitKept,
    /// It died with a request that was chosen.
    SendChosen,
    /// It died when the request was written down, before it left.
    SendWritten,
    /// It died while requests were under way.
    UnderWay,
    /// It died with an answer that was not written.
    AnswerUnwritten,
    /// Its state was gone.
    StateLost,
    /// The turn came to a sender while another had it last, which lives.
    TurnPassed,
    /// The same after the other had died.
    TurnInherited,
    /// The holder was stopped in order, and another had the turn at once, with its slots.
    HandedOn,
    /// The holder froze with requests under way, and another had the turn when it went on.
    Frozen,
    /// Leave had ended when the bytes of a request were to leave: it froze in between.
    LeaveEnded,
    /// A sender died while calls were written that another may have sent, and so marked.
    MarkUnwritten,
    /// It died with a page that was to be asked for.
    PageChosen,
    /// It died while a page was under way.
    PageUnderWay,
    /// It died with a page that was answered, and nothing of it written.
    PageUnwritten,
    /// Its disk failed with a page under way.
    PageDiskFailed,
    /// A page settled calls that another had sent.
    PageSettled,
    /// It died before outcomes were published.
    OutcomesLost,
    /// It died when they were, and that was not written.
    OutcomesTwice,
    /// What another sender told of a call settled it.
    OutcomeHeard,
    /// The stream was deleted and declared again.
    StreamAnew,
    /// It was restored from a copy, which ends before what was read.
    StreamRestored,
    /// The brokers lost the power, and its last messages with it.
    TailLost,
    /// Retention took what was read last, too.
    Overtaken,
}

impl ChainPath {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::PublishLost,
        Self::PublishKept,
        Self::ConfirmUnwritten,
        Self::ConfirmLost,
        Self::BrokerAway,
        Self::ReadTwice,
        Self::DeliveredUnwritten,
        Self::CommitLost,
        Self::CommitKept,
        Self::SendChosen,
        Self::SendWritten,
        Self::UnderWay,
        Self::AnswerUnwritten,
        Self::StateLost,
        Self::TurnPassed,
        Self::TurnInherited,
        Self::HandedOn,
        Self::Frozen,
        Self::LeaveEnded,
        Self::MarkUnwritten,
        Self::PageChosen,
        Self::PageUnderWay,
        Self::PageUnwritten,
        Self::PageDiskFailed,
        Self::PageSettled,
        Self::OutcomesLost,
        Self::OutcomesTwice,
        Self::OutcomeHeard,
    ];

    /// What becomes of the stream itself.
    pub const STREAM: [Self; 4] = [
        Self::StreamAnew,
        Self::StreamRestored,
        Self::TailLost,
        Self::Overtaken,
    ];

    /// A death at this moment of a request, which looks for what another may have sent or not.
    pub const fn of(moment: Moment, searches: bool) -> Self {
        match (moment, searches) {
            (Moment::Answered, true) => Self::PageUnwritten,
            (Moment::Answered, false) => Self::AnswerUnwritten,
            (_, true) => Self::PageChosen,
            (Moment::Chosen, false) => Self::SendChosen,
            (Moment::Writing | Moment::Committed | Moment::Started, false) => Self::SendWritten,
        }
    }
}
