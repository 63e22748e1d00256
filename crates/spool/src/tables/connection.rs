//! The OAuth connection, and the secrets that outlive it. Exports leave the tables out by default.

use crate::connection::{ConnectionChange, StoredConnection};
use crate::{Db, Error};
use callbridge_model::{ExposeSecret as _, Secret};

/// The tables that hold secrets.
pub const SECRET_TABLES: [&str; 2] = ["connection", "shown_once"];

/// Reads the connection, or returns `None` if none is stored.
pub fn connection(db: &Db) -> Result<Option<StoredConnection>, Error> {
    db.query_first("SELECT refresh_token, content FROM connection", ())
}

/// Makes the change if the stored connection is still `change.from`. Returns `true` if `change.to`
/// is stored afterwards, perhaps by an earlier attempt whose result was lost.
pub(crate) fn change(db: &Db, change: &ConnectionChange) -> Result<bool, Error> {
    let rows = match (&change.from, &change.to) {
        (None, None) => 0,
        (None, Some(to)) => {
            let text = "INSERT INTO connection (id, refresh_token, content) VALUES (1, ?1, ?2)
                 ON CONFLICT (id) DO NOTHING";
            db.execute(
                text,
                [to.refresh_token.expose_secret(), to.content.expose_secret()],
            )?
        }
        (Some(from), Some(to)) => {
            let text = "UPDATE connection SET refresh_token = ?1, content = ?2
                 WHERE id = 1 AND refresh_token = ?3";
            let values = [
                to.refresh_token.expose_secret(),
                to.content.expose_secret(),
                from.refresh_token.expose_secret(),
            ];
            db.execute(text, values)?
        }
        (Some(from), None) => {
            let text = "DELETE FROM connection WHERE id = 1 AND refresh_token = ?1";
            db.execute(text, [from.refresh_token.expose_secret()])?
        }
    };
    Ok(rows == 1 || connection(db)? == change.to)
}

/// Reads the secrets that the CRM shows only once and that outlive a connection, as JSON, or
/// returns `None` if none are stored.
pub(crate) fn shown_once(db: &Db) -> Result<Option<Secret>, Error> {
    db.query_first("SELECT content FROM shown_once", ())
}

pub(crate) fn keep_shown_once(db: &Db, content: &Secret) -> Result<(), Error> {
    let text = "INSERT INTO shown_once (id, content) VALUES (1, ?1)
         ON CONFLICT (id) DO UPDATE SET content = excluded.content";
    db.run(text, [content.expose_secret()])
}
