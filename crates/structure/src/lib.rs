//! Reads the structure of the workspace from its sources: which module refers to which within each crate, and which
//! crate depends on which.
//!
//! Guarantees of the check:
//! - No crate has a cycle among modules beside each other, at any depth: the children of one module, each with all
//!   that it contains. A reference counts for the module that defines the item, whatever re-exports lie between;
//!   re-exports themselves are no references. References between a module and its own children do not count.
//! - Every dependency between crates of the workspace is named in `ARCHITECTURE.md`.
//! - All inherent methods of the engine's `Session` stand in one file, and it has at most
//!   [`MAX_SESSION_FIELDS`](session_limit::MAX_SESSION_FIELDS) fields.

pub mod crate_dependencies;
pub mod graph;
pub mod module_tree;
pub mod session_limit;

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// Reason that the structure cannot be read.
#[derive(Debug)]
pub enum StructureError {
    /// This file or folder cannot be read.
    Read(PathBuf, std::io::Error),
    /// This source file is not Rust.
    Parse(PathBuf, syn::Error),
    /// This manifest is not a Cargo manifest.
    Manifest(PathBuf, String),
}

impl Display for StructureError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Parse(path, error) => write!(f, "cannot parse {}: {error}", path.display()),
            Self::Manifest(path, error) => write!(f, "cannot read the manifest {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StructureError {}
