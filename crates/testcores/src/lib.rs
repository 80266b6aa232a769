//! Libretro cores built for tests, and small free [images] for real cores.
//!
//! The test core is one C source that is compiled when a test requests it. Its honest variant is fit for shared play.
//! Each other variant has one defect or oddity, to prove that the checks detect it or cope with it.

pub mod images;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Defect or oddity of a test core. Most variants break one rule of libretro or of determinism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreDefect {
    /// No defect: the core is deterministic and its states are exact.
    #[default]
    Honest = 0,
    /// The state depends on the clock.
    Clock,
    /// The saved state lacks a byte that changes with the inputs.
    Forgets,
    /// The state depends on a memory address.
    Address,
    /// The core is correct for 5,000 frames; from then on its state depends on the clock.
    Late,
    /// The core reports absurd sizes and passes invalid pointers. It is fit for shared play all the same.
    Liar,
    /// The frame rate is not a number.
    NanRate,
    /// The core cannot save its state.
    NoSave,
    /// The core calls the host from a thread of its own. It is fit for shared play all the same.
    Threads,
    /// Saving changes the state, so that later frames differ.
    Disturbed,
    /// The core saves and loads only after its first frame.
    MustRun,
    /// The core requires a graphics card.
    Gpu,
    /// The core loads a state in which byte 10 is above 47, but then reports that loading failed.
    Half,
    /// The state depends on uninitialised memory.
    Unset,
    /// The core cannot save, exposes no memory, and draws only on request. It is fit for lockstep all the same.
    Asks,
    /// The core aborts the process in its fifth frame.
    Aborts,
    /// The core never returns from its fifth frame.
    Hangs,
}

/// Build options of a test core.
#[derive(Clone, Copy, Debug)]
pub struct TestCoreConfig {
    /// Defect to build into the core.
    pub defect: CoreDefect,
    /// Size of the saved state in bytes: a multiple of 4, at least 16.
    pub state_size: usize,
    /// Number of players whose buttons the core reads, at least two.
    pub players: u8,
    /// Number of ports whose buttons the core describes, at least two.
    pub ports: u8,
    /// Version of the interface by which the core declares its options: 0, 1 or 2.
    pub options_version: u8,
}

impl Default for TestCoreConfig {
    fn default() -> Self {
        Self { defect: CoreDefect::Honest, state_size: 1_024, players: 2, ports: 2, options_version: 2 }
    }
}

/// A compiled core, whose file exists until this value is dropped.
#[derive(Debug)]
pub struct TestCore {
    folder: TempDir,
    path: PathBuf,
}

/// Environment variable with the path of a file that every test core creates when it is loaded.
pub const LOAD_MARKER_ENV: &str = "COPLAY_TEST_MARK";

/// Name of the file in a core's directory whose existence makes the core refuse games.
const GATE_FILE: &str = "shut";

impl TestCore {
    /// Returns the path of the core's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the core's file as text.
    pub fn path_string(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes the core refuse or accept games from now on. Loaded games are not affected.
    ///
    /// # Panics
    /// If the core's directory cannot be written, or if `refuse` is false and the core does not refuse games.
    pub fn set_refusing_games(&self, refuse: bool) {
        let gate = self.folder.path().join(GATE_FILE);
        let result = if refuse { std::fs::write(gate, "") } else { std::fs::remove_file(gate) };
        result.expect("the core's directory is writable");
    }
}

/// Builds a core with the C compiler, `cc` or `$CC`. Unless the defect prevents it, the core exposes its memory, has
/// two players and an option `testcore_step` (1, 2 or 3), and needs no game.
///
/// # Panics
/// If there is no C compiler, or if it fails.
pub fn build_core(defect: CoreDefect) -> TestCore {
    build_core_with(TestCoreConfig { defect, ..TestCoreConfig::default() })
}

/// Builds a core with these options, with the C compiler `cc` or `$CC`.
///
/// # Panics
/// If there is no C compiler, or if it fails.
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
