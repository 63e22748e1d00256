//! Reads framed raw messages from PBXs. Bytes of a TCP or TLS connection, a WebSocket, a broker's
//! queue, or a growing file go in. [`Item`]s come out, in one bounded [`Ring`]. The intake sends
//! [`FrameVerdict`]s back after the commit. Frames are decoded after the ring. This crate uses only
//! the framing of the decoders, the dialogues with a PBX, and the surveys of `check`.
//!
//! ```text
//! url        --source, checked
//! source     one source from start to stop; reconnects with `backoff`
//!   live       a connection that repeats no events: read, kept alive, given up; protocols:
//!     ami        AMI over TCP and TLS
//!     esl        FreeSWITCH's event socket
//!     websocket  AMI as JSON; `unmask` turns text frames into binary ones before tungstenite
//!   amqp       a queue: consume, acknowledge after the commit, refuse
//!   file       a file that grows, is renamed, truncated, replaced
//! connect    opens TCP and TLS connections, and describes refusals (`error`)
//! session    output of a source: `item`s with numbers, states, gaps, and its counts
//! ring       the bounded buffer to the intake;  verdict  the verdicts sent back
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
