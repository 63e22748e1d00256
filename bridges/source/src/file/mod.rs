//! Follows either a file that grows (`cel_custom`'s CSV, or an AMI recording) or a directory with
//! one file per record. The file or directory is polled four times a second. Every frame has a
//! position, so after a restart, reading continues where the spool's last commit ended.

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

/// How close the source is to reporting that a file has been read to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The last poll found something to read, or there hasn't been a poll yet.
    Unseen,
    /// There has been nothing to read since this time.
    Seen(Instant),
    /// The end was reported as `Item::Idle`. It won't be reported again until there have been new
    /// frames or an outage.
    Reported,
}

/// A function that polls the disk without waiting.
type ReadStep = Box<dyn FnMut() -> Vec<Sight> + Send>;

/// Returns `true` if `format` has one file per record, and the path ends with a slash or is a
/// directory on disk.
fn is_folder(path: &Path, format: Format) -> bool {
    let has_slash = path.as_os_str().as_encoded_bytes().last() == Some(&b'/');
    format.has_file_per_record() && (has_slash || path.is_dir())
}

/// A file that's being followed, or a directory with one file per record.
pub(crate) struct Tail {
    poll: ReadStep,
    verdicts: VerdictReader,
    end: End,
}

/// Opens the file and reads one byte, or lists the directory.
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
        let why = opening::message(&error);
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

    /// Follows the file until the future is dropped.
    pub(crate) async fn follow(&mut self, context: &mut Context) -> Result<(), Gone> {
        loop {
            self.verdicts.wait_for_pause(false).await;
            // The disk may hang, and a live connection's thread mustn't hang along with it.
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
                    self.verdicts.wait_for_pause(false).await;
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
                // The file may have had a different name for a while.
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
