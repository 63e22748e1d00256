//! A file that grows: `cel_custom`'s CSV, a recording of AMI. Looked at four times a second; its
//! place is in every frame, so that a restart goes on where the spool's commit was.

mod again;
mod document;
mod folder;
mod follow;
mod opened;
mod opening;
#[cfg(test)]
mod tests;
mod waiting;

pub use again::FilesAgain;
pub use opening::sample;

use crate::url::{Format, From};
use crate::{Context, Error, FilePosition, Fix, Gone, Item, VerdictReader};
use folder::RecordFolder;
use follow::{Follower, Sight};
use std::path::{Path, PathBuf};
use std::{io::Read as _, time::Duration};
use tokio::time::Instant;

/// Progress towards the report that a file is read to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The last poll found something to read, or there was none yet.
    Unseen,
    /// Nothing was there to read since then.
    Seen(Instant),
    /// The end was reported as `Item::Idle`, once for this run of frames and since the line is up.
    Reported,
}

/// Looks at the disk for what there is to see now, and waits for nothing.
type ReadStep = Box<dyn FnMut() -> Vec<Sight> + Send>;

/// A file for each record, in a folder: said by a slash at the end, or by what stands there.
fn is_folder(path: &Path, format: Format) -> bool {
    let said = path.as_os_str().as_encoded_bytes().last() == Some(&b'/');
    format.is_a_file_each() && (said || path.is_dir())
}

/// A file, or a folder of them, and how it is followed.
pub(crate) struct Tail {
    poll: ReadStep,
    verdicts: VerdictReader,
    end: End,
}

/// Opens the file, and reads a byte of it; of a folder, its names.
pub(crate) async fn probe(path: &Path, format: Format) -> Result<(), Error> {
    let own = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        if is_folder(&own, format) {
            return std::fs::read_dir(&own).map(|_| 0);
        }
        let (mut file, _) = opening::open(&own)?;
        file.read(&mut [0])
    });
    let read = read.await.unwrap_or_else(|error| Err(error.into()));
    read.map(drop).map_err(|error| {
        let why = opening::words(&error);
        Error::fault(Fix::Remote, format!("{}: {why}", path.display()))
    })
}

impl Tail {
    pub(crate) fn new(
        path: PathBuf,
        format: Format,
        from: From,
        start: Option<FilePosition>,
        again: FilesAgain,
        verdicts: VerdictReader,
    ) -> Self {
        let poll: ReadStep = if is_folder(&path, format) {
            let mut folder = RecordFolder::new(path, from, start, again);
            Box::new(move || folder.poll(std::time::Instant::now()))
        } else {
            let mut follower = Follower::new(path, format, from, start);
            Box::new(move || follower.poll())
        };
        Self {
            poll,
            verdicts,
            end: End::Unseen,
        }
    }

    /// Follows the file for as long as it is awaited.
    pub(crate) async fn follow(&mut self, context: &mut Context) -> Result<(), Gone> {
        loop {
            self.verdicts.paused(false).await;
            // The disk may hang; a live line's thread must not hang with it.
            let mut poll = std::mem::replace(&mut self.poll, Box::new(Vec::new));
            let looked = tokio::task::spawn_blocking(move || (poll(), poll));
            let Ok((sights, given_back)) = looked.await else {
                return Ok(());
            };
            self.poll = given_back;
            let mut wait = false;
            for sight in sights {
                wait = !matches!(sight, Sight::Frames(_) | Sight::Open | Sight::Gap(_));
                self.report(context, sight).await?;
            }
            if wait {
                tokio::time::sleep(context.access.settings.poll_every).await;
            }
        }
    }

    async fn report(&mut self, context: &mut Context, sight: Sight) -> Result<(), Gone> {
        let line = &mut context.line;
        let is_absent = matches!(sight, Sight::Absent(_));
        match sight {
            Sight::Frames(frames) => {
                self.end = End::Unseen;
                for record in frames {
                    self.verdicts.paused(false).await;
                    line.give(record.into()).await?;
                }
                Ok(())
            }
            Sight::Open => line.up(false).await,
            Sight::Gap(why) => line.gap(why).await,
            Sight::Trouble(why) | Sight::Absent(why) => {
                self.end = End::Unseen;
                line.down(why, Fix::Settings, Duration::ZERO, is_absent)
                    .await
            }
            Sight::Wait => Ok(()),
            Sight::End(position) => {
                // It may have had another name for a while.
                line.up(false).await?;
                let now = Instant::now();
                let since = match self.end {
                    End::Reported => return Ok(()),
                    End::Unseen => now,
                    End::Seen(since) => since,
                };
                self.end = End::Seen(since);
                if now.duration_since(since) < context.access.settings.idle_after {
                    return Ok(());
                }
                self.end = End::Reported;
                line.report(Item::Idle { position }).await
            }
        }
    }
}
