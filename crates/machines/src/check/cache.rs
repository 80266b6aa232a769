//! Reports that are kept, because a check takes its time and its outcome does not change.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use coplay::hash::xxh64;

use super::report::{Identity, Report};

/// So many reports are kept; the oldest go first.
const MOST: usize = 256;
/// A longer file is no report.
const MAX_BYTES: u64 = 256 << 10;
/// How their names end.
const ENDING: &str = "check";

/// A folder of reports. Whatever is wrong with it is as if nothing had been kept: the check is made again.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Keeps reports in a folder, which is made when there is something to keep.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// What was found out about this machine and game, by this version of the check on this kind of computer.
    pub fn get(&self, identity: &Identity) -> Option<Report> {
        let path = self.path(identity);
        if std::fs::metadata(&path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let text = std::fs::read_to_string(&path).ok()?;
        let (sum, json) = text.split_once('\n')?;
        let mut report: Report = (sum == checksum(json)).then(|| serde_json::from_str(json).ok())??;
        // The name of a file is a hash: this one may be of another. What a game is called does not matter.
        let whose = |identity: &Identity| (identity.key.clone(), identity.check, identity.platform.clone());
        let ours = whose(&report.identity) == whose(identity);
        if !identity.game.is_empty() {
            report.identity.game.clone_from(&identity.game);
        }
        ours.then_some(report)
    }

    /// Keeps a report, if that is possible. One that may say something else next time is not worth it.
    pub fn put(&self, report: &Report) {
        if report.is_lasting() {
            // No harm is done: it will be found out again.
            let _ = self.try_put(report);
        }
    }

    fn try_put(&self, report: &Report) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let json = report.to_json();
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        std::fs::write(file.path(), format!("{}\n{json}", checksum(&json)))?;
        file.persist(self.path(&report.identity))?;
        self.trim()
    }

    /// Lets go of the oldest.
    fn trim(&self) -> std::io::Result<()> {
        let is_ours = |path: &Path| path.extension().is_some_and(|ending| ending == ENDING);
        let files = self.folder.read_dir()?.flatten().map(|entry| entry.path()).filter(|path| is_ours(path));
        let age = |path: &Path| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut files: Vec<_> = files.map(|path| (age(&path), path)).collect();
        files.sort_unstable();
        let many = files.len().saturating_sub(MOST);
        files.iter().take(many).try_for_each(|(_, path)| std::fs::remove_file(path))
    }

    fn path(&self, identity: &Identity) -> PathBuf {
        let whole = format!("{}\n{}\n{}", identity.key, identity.check, identity.platform);
        self.folder.join(format!(
            "{}{:016x}.{ENDING}",
            &identity.key[..16.min(identity.key.len())],
            xxh64(0, whole.as_bytes())
        ))
    }
}

fn checksum(json: &str) -> String {
    format!("{:016x}", xxh64(0, json.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::measure::Measured;
    use crate::check::verdict::{Comparison, Reason, Verdict};

    fn report(key: &str) -> Report {
        let identity = Identity {
            key: key.into(),
            machine: "nes".into(),
            version: "1".into(),
            options: vec![("region".into(), "\"pal\"\n".into())],
            game: "g\u{e4}me".into(),
            game_sha256: "00".into(),
            players: 2,
            period_ns: 16_666_667,
            platform: "linux".into(),
            check: 1,
        };
        Report {
            verdict: Verdict::Rollback,
            identity,
            compared: Vec::new(),
            cut_short: Vec::new(),
            measured: Measured::default(),
            window: 8,
            notes: Vec::new(),
            took_ms: 1,
        }
    }

    #[test]
    fn what_was_put_is_got_by_the_same_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("not yet there"));
        let one = report("0123456789abcdef01");
        assert_eq!(cache.get(&one.identity), None);
        cache.put(&one);
        assert_eq!(cache.get(&one.identity), Some(one.clone()));
        let other = |change: fn(&mut Identity)| {
            let mut identity = one.identity.clone();
            change(&mut identity);
            cache.get(&identity)
        };
        assert_eq!(other(|it| it.check = 2), None);
        assert_eq!(other(|it| it.platform = "mars".into()), None);
        assert_eq!(other(|it| it.key.push('2')), None);
        assert_eq!(other(|it| it.game = "renamed".into()).unwrap().identity.game, "renamed");
    }

    #[test]
    fn damaged_files_are_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, one) = (Cache::new(folder.path()), report("ab"));
        cache.put(&one);
        let path = cache.path(&one.identity);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&one.identity), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get(&one.identity), None, "cut at {at}");
        }
        std::fs::write(&path, vec![b' '; MAX_BYTES as usize + 1]).unwrap();
        assert_eq!(cache.get(&one.identity), None);
        cache.put(&one);
        assert_eq!(cache.get(&one.identity), Some(one));
    }

    #[test]
    fn it_does_not_grow_for_ever_and_keeps_nothing_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        std::fs::write(folder.path().join("somebody's"), "").unwrap();
        let reports: Vec<Report> = (0..MOST + 5).map(|number| report(&format!("{number:04}"))).collect();
        reports.iter().for_each(|one| cache.put(one));
        assert_eq!(folder.path().read_dir().unwrap().count(), MOST + 1);
        assert!(cache.get(&reports[MOST + 4].identity).is_some());
        let mut cut = report("cut");
        cut.cut_short.push(Comparison::Long);
        cache.put(&cut);
        assert_eq!(cache.get(&cut.identity), None);
    }

    #[test]
    fn what_a_busy_computer_says_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let slow = Verdict::Lockstep { reason: Reason::TooSlow { repair_ns: 2, period_ns: 1 } };
        let cannot = Verdict::Lockstep { reason: Reason::CannotSave };
        for (verdict, window, kept) in [(Verdict::Rollback, 0, false), (slow, 0, false), (cannot, 0, true)] {
            let busy = Report { verdict, window, ..report("busy") };
            cache.put(&busy);
            assert_eq!(cache.get(&busy.identity).is_some(), kept, "{}", busy.verdict);
        }
    }
}
