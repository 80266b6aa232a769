//! For tests: libretro cores of our own, and small free [images] for real ones.
//!
//! A core of ours is one C source that is compiled when a test asks for it. The honest one is fit to be shared; the others break one rule each, to prove
//! that whoever looks for it finds it.

pub mod images;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// What is wrong with a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreDefect {
    /// Nothing.
    #[default]
    Honest = 0,
    /// It reads the clock into its state.
    Clock,
    /// It leaves a byte, that changes with inputs, out of its saved state.
    Forgets,
    /// It mixes an address into its state.
    Address,
    /// It is right until frame 5,000.
    Late,
    /// It says absurd sizes and passes pointers to nothing. It is fit all the same.
    Liar,
    /// It has no frame rate.
    NanRate,
    /// It cannot save.
    NoSave,
    /// It calls its host from a thread of its own. It is fit all the same.
    Threads,
    /// Saving changes how it goes on.
    Disturbed,
    /// It saves and loads only when it has run.
    MustRun,
    /// It wants the graphics card.
    Gpu,
    /// It takes half of a state that it then refuses: one in which byte 10 is more than 47.
    Half,
    /// It reads memory that it never set.
    Unset,
    /// It cannot save, shows no memory, and draws only what it is asked for. It is fit for lockstep all the same.
    Asks,
    /// It takes its process down in its fifth frame.
    Aborts,
    /// It never comes back from its fifth frame.
    Hangs,
}

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct TestCoreConfig {
    /// What is wrong with it.
    pub defect: CoreDefect,
    /// Bytes of its state, at least 16.
    pub state_size: usize,
    /// Whose buttons it reads, at least two.
    pub players: u8,
    /// Ports whose buttons it describes, at least two.
    pub ports: u8,
    /// The form in which it declares its options: 0, 1 or 2.
    pub options_version: u8,
}

impl Default for TestCoreConfig {
    fn default() -> Self {
        Self { defect: CoreDefect::Honest, state_size: 1_024, players: 2, ports: 2, options_version: 2 }
    }
}

/// A core's file, which is there until this is dropped.
#[derive(Debug)]
pub struct TestCore {
    folder: TempDir,
    path: PathBuf,
}

/// The environment variable that names the file which every core creates when it is loaded.
pub const LOAD_MARKER_ENV: &str = "COPLAY_TEST_MARK";

/// The file that keeps a core from taking games, as long as there is one.
const GATE_FILE: &str = "shut";

impl TestCore {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Likewise, as text.
    pub fn path_string(&self) -> String {
        self.path.display().to_string()
    }

    /// From now on it takes no game, or takes games again. Those that it has are not touched.
    ///
    /// # Panics
    /// If its folder cannot be written.
    pub fn set_refusing_games(&self, shut: bool) {
        let gate = self.folder.path().join(GATE_FILE);
        let done = if shut { std::fs::write(gate, "") } else { std::fs::remove_file(gate) };
        done.expect("its own folder");
    }
}

/// Builds a core with the C compiler, `cc` or what `$CC` says. It shows its memory, has two players, an option `testcore_step` (1, 2 or 3) and needs no
/// game.
///
/// # Panics
/// If there is no compiler.
pub fn build_core(cheat: CoreDefect) -> TestCore {
    build_core_with(TestCoreConfig { defect: cheat, ..TestCoreConfig::default() })
}

/// Builds a core as told.
///
/// # Panics
/// If there is no compiler.
pub fn build_core_with(build: TestCoreConfig) -> TestCore {
    let folder = tempfile::tempdir().expect("a folder for a core");
    let source = folder.path().join("core.c");
    std::fs::write(&source, include_str!("core.c")).expect("room for a source");
    let path = folder.path().join(format!("test_libretro.{}", std::env::consts::DLL_EXTENSION));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&path)
        .arg(format!("-DCHEAT={}", build.defect as u8))
        .arg(format!("-DSTATE_SIZE={}", build.state_size))
        .arg(format!("-DPLAYERS={}", build.players))
        .arg(format!("-DPORTS={}", build.ports))
        .arg(format!("-DOPTIONS={}", build.options_version))
        .arg(format!("-DGATE=\"{}\"", folder.path().join(GATE_FILE).display()))
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("no C compiler ({}): {error}", compiler.display()));
    assert!(out.status.success(), "the core does not build:\n{}", String::from_utf8_lossy(&out.stderr));
    TestCore { folder, path }
}
