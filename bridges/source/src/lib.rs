//! Brings a PBX's words here as framed raw messages. In: bytes of a TCP or TLS line, a
//! WebSocket, a broker's queue, a growing file. Out: [`Item`]s in one bounded [`Ring`]; back come
//! [`FrameVerdict`]s, once what was read is committed. What the bytes mean is decided behind the
//! ring; of the decoders only framing, the dialogues with a PBX and the surveys of `check` are used
//! here.
//!
//! ```text
//! url        --source, checked
//! source     one source from start to stop; reconnects with `backoff`
//!   live       a line without a memory: read, kept alive, given up; it is spoken on in
//!     ami        AMI over TCP and TLS
//!     esl        FreeSWITCH's event socket
//!     websocket  AMI as JSON; `unmask` turns text frames into binary ones before tungstenite
//!   amqp       a queue: consume, acknowledge after the commit, refuse
//!   file       a file that grows, is renamed, truncated, replaced
//! connect    TCP and TLS lines, refusals in words (`error`)
//! session    what a source tells: `item`s with seq, states and gaps, and its counts
//! ring       the bounded way to the intake;  verdict  the way back
//! ```

#![warn(missing_docs)]

mod ami;
pub mod amqp;
mod backoff;
mod connect;
mod error;
mod esl;
mod file;
mod item;
mod live;
mod ring;
mod session;
mod settings;
mod source;
pub mod url;
mod verdict;
mod websocket;

pub use backoff::{Backoff, Bounds, chance};
pub use callbridge_call::EventTime;
pub use error::{Error, Fix, LineError};
pub use file::{FilesAgain, sample};
pub use item::{FilePosition, Frame, Item, Outage, RECORD_IN_FILE, RecordDetails, SourceId};
pub use ring::{Gone, Intake, Limits, Ring, ring};
pub use session::{Counts, CountsNow};
pub use settings::{Clock, Secret, Settings};
pub use source::Source;
pub use url::{BrokerUrl, SourceUrl, Transport};
pub use verdict::{FrameVerdict, VerdictReader, Verdicts, verdicts};

pub(crate) use connect::{NO_REASON, Stream, Target};
pub(crate) use live::{LiveLine, Pings, TcpLine, listen, send_within};
pub(crate) use session::{Access, Context, FrameContent, SourceFeed, Stop};
pub(crate) use url::{QueueSource, TcpEndpoint};
