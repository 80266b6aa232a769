//! Cache of check reports, because a check takes long and its result does not change.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use coplay::hash::xxh64;

use super::report::{CheckReport, SubjectIdentity};

/// Maximum number of cached reports; the oldest are removed first.
const MAX_REPORTS: usize = 256;
/// Maximum length of a report file, in bytes. A longer file is ignored.
const MAX_REPORT_LEN: u64 = 256 << 10;
const REPORT_EXTENSION: &str = "check";

/// A folder of cached reports. If the file of a report is missing or invalid, the report counts as not cached, and the
/// check runs again.
#[derive(Clone, Debug)]
pub struct ReportCache {
    folder: PathBuf,
}

impl ReportCache {
    /// Creates a cache in a folder, which is created with the first report.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the cached report on the machine and game with this identity, made by the same version of the check on
    /// the same platform.
    pub fn get(&self, identity: &SubjectIdentity) -> Option<CheckReport> {
        let path = self.report_path(identity);
        if std::fs::metadata(&path).ok()?.len() > MAX_REPORT_LEN {
            return None;
        }
        let text = std::fs::read_to_string(&path).ok()?;
        let (sum, json) = text.split_once('\n')?;
        let mut report: CheckReport = (sum == checksum(json)).then(|| serde_json::from_str(json).ok())??;
        // The file name is a hash, so the file may be of another subject. The display name of the game does not matter.
        let subject_of =
            |identity: &SubjectIdentity| (identity.key.clone(), identity.check_version, identity.platform.clone());
        let is_same_subject = subject_of(&report.identity) == subject_of(identity);
        if !identity.game.is_empty() {
            report.identity.game.clone_from(&identity.game);
        }
        is_same_subject.then_some(report)
    }

    /// Caches a report, if [`is_cacheable`](CheckReport::is_cacheable) holds. A failure to write is ignored.
    pub fn put(&self, report: &CheckReport) {
        if report.is_cacheable() {
            // A failure is harmless: the check runs again.
            let _ = self.try_put(report);
        }
    }

    fn try_put(&self, report: &CheckReport) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let json = report.to_json();
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        std::fs::write(file.path(), format!("{}\n{json}", checksum(&json)))?;
        file.persist(self.report_path(&report.identity))?;
        self.remove_oldest()
    }

    /// Removes the oldest reports beyond [`MAX_REPORTS`].
    fn remove_oldest(&self) -> std::io::Result<()> {
        let is_ours = |path: &Path| path.extension().is_some_and(|extension| extension == REPORT_EXTENSION);
        let files = self.folder.read_dir()?.flatten().map(|entry| entry.path()).filter(|path| is_ours(path));
        let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut files: Vec<_> = files.map(|path| (modified(&path), path)).collect();
        files.sort_unstable();
        let excess = files.len().saturating_sub(MAX_REPORTS);
        files.iter().take(excess).try_for_each(|(_, path)| std::fs::remove_file(path))
    }

    fn report_path(&self, identity: &SubjectIdentity) -> PathBuf {
        let text = format!("{}\n{}\n{}", identity.key, identity.check_version, identity.platform);
        self.folder.join(format!(
            "{}{:016x}.{REPORT_EXTENSION}",
            &identity.key[..16.min(identity.key.len())],
            xxh64(0, text.as_bytes())
        ))
    }
}

fn checksum(json: &str) -> String {
    format!("{:016x}", xxh64(0, json.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::measure::MeasuredCosts;
    use crate::check::verdict::{CheckComparison, CheckVerdict, LockstepReason};

    fn test_report(key: &str) -> CheckReport {
        let identity = SubjectIdentity {
            key: key.into(),
            machine: "nes".into(),
            version: "1".into(),
            options: vec![("region".into(), "\"pal\"\n".into())],
            game: "g\u{e4}me".into(),
            game_sha256: "00".into(),
            players: 2,
            period_ns: 16_666_667,
            platform: "linux".into(),
            check_version: 1,
        };
        CheckReport {
            verdict: CheckVerdict::Rollback,
            identity,
            compared: Vec::new(),
            cut_short: Vec::new(),
            measured: MeasuredCosts::default(),
            prediction_window: 8,
            notes: Vec::new(),
            elapsed_ms: 1,
        }
    }

    #[test]
    fn cached_report_is_found_only_by_same_identity() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReportCache::new(folder.path().join("not yet there"));
        let one = test_report("0123456789abcdef01");
        assert_eq!(cache.get(&one.identity), None);
        cache.put(&one);
        assert_eq!(cache.get(&one.identity), Some(one.clone()));
        let other = |change: fn(&mut SubjectIdentity)| {
            let mut identity = one.identity.clone();
            change(&mut identity);
            cache.get(&identity)
        };
        assert_eq!(other(|it| it.check_version = 2), None);
        assert_eq!(other(|it| it.platform = "mars".into()), None);
        assert_eq!(other(|it| it.key.push('2')), None);
        assert_eq!(other(|it| it.game = "renamed".into()).unwrap().identity.game, "renamed");
    }

    #[test]
    fn damaged_report_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, one) = (ReportCache::new(folder.path()), test_report("ab"));
        cache.put(&one);
        let path = cache.report_path(&one.identity);
        let text = std::fs::read(&path).unwrap();
        for at in (0..text.len()).step_by(7) {
            let mut damaged = text.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&one.identity), None, "byte {at}");
            std::fs::write(&path, &text[..at]).unwrap();
            assert_eq!(cache.get(&one.identity), None, "truncated at {at}");
        }
        std::fs::write(&path, vec![b' '; MAX_REPORT_LEN as usize + 1]).unwrap();
        assert_eq!(cache.get(&one.identity), None);
        cache.put(&one);
        assert_eq!(cache.get(&one.identity), Some(one));
    }

    #[test]
    fn cache_is_bounded_and_excludes_reports_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReportCache::new(folder.path());
        std::fs::write(folder.path().join("foreign"), "").unwrap();
        let reports: Vec<CheckReport> =
            (0..MAX_REPORTS + 5).map(|number| test_report(&format!("{number:04}"))).collect();
        reports.iter().for_each(|one| cache.put(one));
        assert_eq!(folder.path().read_dir().unwrap().count(), MAX_REPORTS + 1);
        assert!(cache.get(&reports[MAX_REPORTS + 4].identity).is_some());
        let mut cut = test_report("cut");
        cut.cut_short.push(CheckComparison::LongRun);
        cache.put(&cut);
        assert_eq!(cache.get(&cut.identity), None);
    }

    #[test]
    fn report_affected_by_system_load_is_not_cached() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReportCache::new(folder.path());
        let slow = CheckVerdict::Lockstep { reason: LockstepReason::TooSlow { rollback_ns: 2, period_ns: 1 } };
        let cannot = CheckVerdict::Lockstep { reason: LockstepReason::CannotSave };
        for (verdict, window, kept) in [(CheckVerdict::Rollback, 0, false), (slow, 0, false), (cannot, 0, true)] {
            let busy = CheckReport { verdict, prediction_window: window, ..test_report("busy") };
            cache.put(&busy);
            assert_eq!(cache.get(&busy.identity).is_some(), kept, "{}", busy.verdict);
        }
    }
}
