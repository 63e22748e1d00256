//! The formats that this crate reads.

/// What Asterisk, or a gateway beside it, writes; names and traits of all formats stand in
/// `callbridge-formats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AsteriskFormat {
    /// AMI as Asterisk speaks it on TCP port 5038.
    Ami,
    /// AMI as JSON: amiws's envelope, or an event as one flat object.
    AmiJson,
    /// Rows of `cel_custom`.
    CelCsv,
    /// Message bodies of asterisk-cel-amqp.
    CelAmqp,
    /// Message bodies of asterisk-cdr-amqp.
    CdrAmqp,
    /// Rows of `cdr_csv`, of `cdr_custom`'s sample, or of a table with a header.
    CdrCsv,
    /// Message bodies of Wazo's bus: an AMI event each, in an envelope.
    Wazo,
}
