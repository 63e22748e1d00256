//! Reads request bodies into memory within a shared budget.

use crate::budget::ByteShare;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The first bytes of each body are free, so a sender who fills the budget can't keep short bodies
/// out.
pub const FREE_BYTES: usize = 16 * 1024;

/// Limits on the length of a body in bytes.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Maximum length.
    pub bytes_max: usize,
    /// Up to this many bytes, a body that's longer than that is discarded as it arrives, because
    /// senders don't read the response until they've sent the whole body.
    pub dropped_max: usize,
}

/// Why a body wasn't read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The connection was closed before the end of the body.
    Cut,
    /// The body is longer than its limit.
    TooLarge,
    /// The budget is used up, which isn't necessarily the sender's fault.
    NoRoom,
}

/// A body, along with its share of the budget, which is returned on drop.
#[derive(Debug)]
pub struct HeldBody {
    limits: BodyLimits,
    share: ByteShare,
    bytes: Vec<u8>,
    length: usize,
    fault: Option<BodyFault>,
}

impl HeldBody {
    /// Creates an empty body that will count against this share.
    pub const fn new(limits: BodyLimits, share: ByteShare) -> Self {
        Self {
            limits,
            share,
            bytes: Vec::new(),
            length: 0,
            fault: None,
        }
    }

    /// Returns how many bytes have arrived.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Reads a body to the end, passing each chunk that's kept to `on_piece`.
    ///
    /// # Errors
    /// Returns an error if the body is cut off, is too large, or exceeds the budget.
    pub async fn read(
        &mut self,
        body: Incoming,
        mut on_piece: impl FnMut(&[u8]),
    ) -> Result<Bytes, BodyFault> {
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| BodyFault::Cut)?;
            if self.add(&piece)? {
                on_piece(&piece);
            }
        }
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Bytes::from(std::mem::take(&mut self.bytes))),
        }
    }

    /// Adds a chunk. Returns `true` if it was kept, or an error if reading should stop.
    fn add(&mut self, piece: &[u8]) -> Result<bool, BodyFault> {
        self.length += piece.len();
        if self.length > self.limits.dropped_max {
            return Err(BodyFault::TooLarge);
        }
        if self.length > self.limits.bytes_max {
            self.fault = Some(BodyFault::TooLarge);
        } else if self.fault.is_none() && !self.make_room() {
            self.fault = Some(BodyFault::NoRoom);
        }
        if self.fault.is_some() {
            self.bytes = Vec::new();
            self.share.give_back();
            return Ok(false);
        }
        self.bytes.extend_from_slice(piece);
        Ok(true)
    }

    /// Doubles the buffer until everything that has arrived fits, or returns `false` if the budget
    /// is used up.
    fn make_room(&mut self) -> bool {
        if self.length <= self.bytes.capacity() {
            return true;
        }
        let capacity = self.length.next_power_of_two().min(self.limits.bytes_max);
        let is_held = self.share.grow_to(capacity.saturating_sub(FREE_BYTES));
        if is_held {
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::ByteBudget;

    const LIMITS: BodyLimits = BodyLimits {
        bytes_max: 4 * FREE_BYTES,
        dropped_max: 8 * FREE_BYTES,
    };

    fn assert_left(budget: &ByteBudget, bytes: usize) {
        let mut share = budget.share();
        assert!(share.grow_to(bytes), "{bytes} bytes are free");
        assert!(!share.grow_to(bytes + 1), "and no more");
    }

    #[test]
    fn short_bodies_fit_when_the_budget_is_used_up() {
        let budget = ByteBudget::new(2 * FREE_BYTES);
        let piece = vec![b' '; FREE_BYTES];
        let mut large = HeldBody::new(LIMITS, budget.share());
        assert_eq!(large.add(&piece), Ok(true));
        assert_left(&budget, 2 * FREE_BYTES);
        assert_eq!(large.add(&piece), Ok(true));
        assert_eq!(large.add(&piece), Ok(false), "4 times, of which 2 are left");
        assert_eq!(large.fault, Some(BodyFault::NoRoom));
        assert_left(&budget, 2 * FREE_BYTES);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.grow_to(FREE_BYTES) && second.grow_to(FREE_BYTES));
        let mut short = HeldBody::new(LIMITS, budget.share());
        assert_eq!(short.add(&piece), Ok(true));
    }

    #[test]
    fn body_beyond_its_limit_is_dropped_until_it_is_far_too_long() {
        let budget = ByteBudget::new(8 * FREE_BYTES);
        let mut body = HeldBody::new(LIMITS, budget.share());
        assert_eq!(body.add(&vec![b' '; 4 * FREE_BYTES]), Ok(true));
        assert_left(&budget, 5 * FREE_BYTES);
        assert_eq!(body.add(b" "), Ok(false));
        assert_left(&budget, 8 * FREE_BYTES);
        assert_eq!(body.fault, Some(BodyFault::TooLarge));
        let rest = vec![b' '; 4 * FREE_BYTES];
        assert_eq!(body.add(&rest), Err(BodyFault::TooLarge));
    }
}
