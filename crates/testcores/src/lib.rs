//! For tests: libretro cores of our own, and small free [images] for real cores.
//!
//! Our core is one C source that is compiled when a test requests it. The honest variant is fit for shared play. Each
//! other variant breaks one rule, to prove that the checks detect it.

pub mod images;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Defect of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreDefect {
    /// No defect.
    #[default]
    Honest = 0,
    /// Its state depends on the clock.
    Clock,
    /// Its saved state lacks a byte that changes with the inputs.
    Forgets,
    /// Its state depends on a memory address.
    Address,
    /// It is correct until frame 5,000.
    Late,
    /// It reports absurd sizes and passes invalid pointers. It is fit for shared play all the same.
    Liar,
    /// Its frame rate is not a number.
    NanRate,
    /// It cannot save.
    NoSave,
    /// It calls the host from a thread of its own. It is fit for shared play all the same.
    Threads,
    /// Saving changes its state, so that later frames differ.
    Disturbed,
    /// It saves and loads only after its first frame.
    MustRun,
    /// It requires a graphics card.
    Gpu,
    /// It loads half of a state that it then refuses: one in which byte 10 is more than 47.
    Half,
    /// It reads uninitialised memory.
    Unset,
    /// It cannot save, exposes no memory, and draws only on request. It is fit for lockstep all the same.
    Asks,
    /// It aborts the process in its fifth frame.
    Aborts,
    /// It never returns from its fifth frame.
    Hangs,
}

/// Build options of a core.
#[derive(Clone, Copy, Debug)]
pub struct TestCoreConfig {
    /// Defect of the core.
    pub defect: CoreDefect,
    /// Size of its state in bytes, at least 16.
    pub state_size: usize,
    /// Number of players whose buttons it reads, at least two.
    pub players: u8,
    /// Number of ports whose buttons it describes, at least two.
    pub ports: u8,
    /// Version of the interface by which it declares its options: 0, 1 or 2.
    pub options_version: u8,
}

impl Default for TestCoreConfig {
    fn default() -> Self {
        Self { defect: CoreDefect::Honest, state_size: 1_024, players: 2, ports: 2, options_version: 2 }
    }
}

/// The file of a core, which exists until this is dropped.
#[derive(Debug)]
pub struct TestCore {
    folder: TempDir,
    path: PathBuf,
}

/// Environment variable with the path of a file that every core creates when it is loaded.
pub const LOAD_MARKER_ENV: &str = "COPLAY_TEST_MARK";

/// File whose existence makes a core refuse games.
const GATE_FILE: &str = "shut";

impl TestCore {
    /// Returns the path of the core.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the core as text.
    pub fn path_string(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes the core refuse or accept games from now on. Loaded games are not affected.
    ///
    /// # Panics
    /// If its directory cannot be written.
    pub fn set_refusing_games(&self, refuse: bool) {
        let gate = self.folder.path().join(GATE_FILE);
        let result = if refuse { std::fs::write(gate, "") } else { std::fs::remove_file(gate) };
        result.expect("the core's directory is writable");
    }
}

/// Builds a core with the C compiler, `cc` or `$CC`. It exposes its memory, has two players and an option
/// `testcore_step` (1, 2 or 3), and needs no game.
///
/// # Panics
/// If there is no C compiler.
pub fn build_core(defect: CoreDefect) -> TestCore {
    build_core_with(TestCoreConfig { defect, ..TestCoreConfig::default() })
}

/// Builds a core with these options.
///
/// # Panics
/// If there is no C compiler.
pub fn build_core_with(config: TestCoreConfig) -> TestCore {
    let folder = tempfile::tempdir().expect("a temporary directory can be created");
    let source = folder.path().join("core.c");
    std::fs::write(&source, include_str!("core.c")).expect("the source can be written");
    let path = folder.path().join(format!("test_libretro.{}", std::env::consts::DLL_EXTENSION));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&path)
        .arg(format!("-DDEFECT={}", config.defect as u8))
        .arg(format!("-DSTATE_SIZE={}", config.state_size))
        .arg(format!("-DPLAYERS={}", config.players))
        .arg(format!("-DPORTS={}", config.ports))
        .arg(format!("-DOPTIONS={}", config.options_version))
        .arg(format!("-DGATE=\"{}\"", folder.path().join(GATE_FILE).display()))
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("cannot run the C compiler {}: {error}", compiler.display()));
    assert!(out.status.success(), "cannot build the core:\n{}", String::from_utf8_lossy(&out.stderr));
    TestCore { folder, path }
}
