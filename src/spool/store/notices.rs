//! The outbox: letters that the broker has yet to be told of.

use super::super::op::{Done, RowId};
use super::head::count;
use super::{Store, sql};
use crate::journal::CallUuid;
use crate::spool::{Error, Notice};

impl Store {
    /// Tells those who watch of a letter, and queues its notice in the transaction that made it.
    pub(super) fn queue_notice(&mut self, id: RowId) -> Result<(), Error> {
        self.tally.letter(id);
        if !self.settings.notices {
            return Ok(());
        }
        let letter = self
            .letter(id)?
            .ok_or_else(|| self.damaged(format!("{id} is no letter")))?;
        let trunk = letter.call.as_ref().and_then(|call| call.trunk.as_deref());
        let mut listed = letter.clone();
        if let Some(unread) = &mut listed.bytes {
            unread.bytes.truncate(crate::spool::LISTED_BYTES_MAX);
        }
        self.execute(
            "INSERT INTO notices (message_id, body, reason, uuid, linkedid, trunk)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (
                format!("{}:{}", letter.id, letter.deaths),
                listed.to_json().to_string(),
                letter.reason.word(),
                letter.uuid.map(|uuid| uuid.0.into_bytes()),
                &letter.linkedid,
                trunk,
            ),
        )?;
        Ok(())
    }

    /// The outbox, oldest first.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn notices(&self, limit: usize) -> Result<Vec<Notice>, Error> {
        let mut found = self.prepare(
            "SELECT id, message_id, body, reason, uuid, linkedid, trunk
             FROM notices ORDER BY id LIMIT ?1",
        )?;
        let mut rows = sql(self, found.query([count(limit)]))?;
        let mut notices = Vec::new();
        while let Some(row) = sql(self, rows.next())? {
            let read = || -> rusqlite::Result<(Notice, String)> {
                let uuid: Option<[u8; 16]> = row.get(4)?;
                let notice = Notice {
                    notice: row.get(0)?,
                    message_id: row.get(1)?,
                    body: row.get(2)?,
                    reason: crate::journal::Reason::Unreadable,
                    uuid: uuid.map(|bytes| CallUuid(uuid::Uuid::from_bytes(bytes))),
                    linkedid: row.get(5)?,
                    trunk: row.get(6)?,
                };
                Ok((notice, row.get(3)?))
            };
            let (mut notice, word) = sql(self, read())?;
            notice.reason = self.read_reason(RowId(notice.notice), &word)?;
            notices.push(notice);
        }
        Ok(notices)
    }

    pub(super) fn drop_notice(&self, notice: i64) -> Result<Done, Error> {
        self.execute("DELETE FROM notices WHERE id = ?1", [notice])?;
        Ok(Done::Stored)
    }
}
