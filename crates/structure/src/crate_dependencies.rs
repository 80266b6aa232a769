//! Dependencies between the crates of the workspace, as the manifests have them and as `ARCHITECTURE.md` names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::StructureError;

/// Name, folder and dependencies within the workspace of one crate, as its manifest states them.
#[derive(Debug)]
pub struct WorkspaceCrate {
    /// Name of the package.
    pub name: String,
    /// Folder of the manifest.
    pub folder: PathBuf,
    /// Names of the workspace's packages that the package depends on.
    pub dependencies: Vec<String>,
    /// Names of the workspace's packages that only its tests and examples depend on.
    pub test_dependencies: Vec<String>,
}

/// Packages of the workspace that tests and examples of every package may use.
pub const TEST_PACKAGES: [&str; 4] = ["coplay-links", "coplay-sim", "coplay-testcores", "coplay-world"];

/// Dependencies as the documentation names them: by package, what it depends on.
pub type DocumentedDependencies = BTreeMap<String, Vec<String>>;

/// Reads the manifests of all crates in the workspace's folders.
pub fn read_workspace(root: &Path) -> Result<Vec<WorkspaceCrate>, StructureError> {
    let mut crates = Vec::new();
    for group in ["crates", "apps"] {
        let folder = root.join(group);
        let entries = std::fs::read_dir(&folder).map_err(|error| StructureError::Read(folder.clone(), error))?;
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        folders.sort();
        for folder in folders.into_iter().filter(|folder| folder.join("Cargo.toml").exists()) {
            crates.push(read_manifest(folder)?);
        }
    }
    let names: Vec<String> = crates.iter().map(|known| known.name.clone()).collect();
    for known in &mut crates {
        known.dependencies.retain(|name| names.contains(name));
        known.test_dependencies.retain(|name| names.contains(name));
    }
    Ok(crates)
}

fn read_manifest(folder: PathBuf) -> Result<WorkspaceCrate, StructureError> {
    let path = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| StructureError::Read(path.clone(), error))?;
    let manifest: toml::Table =
        text.parse().map_err(|error: toml::de::Error| StructureError::Manifest(path.clone(), error.to_string()))?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let Some(name) = name else { return Err(StructureError::Manifest(path, "it names no package".into())) };
    let mut found =
        WorkspaceCrate { name: name.into(), folder, dependencies: Vec::new(), test_dependencies: Vec::new() };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    for table in targets.chain([&manifest]) {
        let names =
            |key: &str| table.get(key).and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
        found.dependencies.extend(names("dependencies").chain(names("build-dependencies")).cloned());
        found.test_dependencies.extend(names("dev-dependencies").cloned());
    }
    Ok(found)
}

/// Returns the dependencies that a document names: lines such as `net/ coplay-net -> coplay, coplay-links: text` inside
/// code blocks.
pub fn named_dependencies(document: &str) -> DocumentedDependencies {
    let mut is_code = false;
    let mut named = DocumentedDependencies::new();
    for line in document.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let Some((before, after)) = line.split_once("->").filter(|_| is_code) else { continue };
        let Some(name) = before.split_whitespace().last() else { continue };
        let list = after.split(':').next().unwrap_or_default();
        named.insert(name.into(), list.split(',').map(|name| name.trim().into()).collect());
    }
    named
}

/// Returns a sentence for each dependency that is not named, and for each named one that does not exist.
pub fn differences(crates: &[WorkspaceCrate], named: &DocumentedDependencies) -> Vec<String> {
    let mut found = Vec::new();
    for known in crates {
        let (name, actual) = (&known.name, &known.dependencies);
        let named = named.get(name).map_or(&[][..], Vec::as_slice);
        let unnamed = actual.iter().filter(|other| !named.contains(other));
        found.extend(unnamed.map(|other| format!("{name} depends on {other}, which ARCHITECTURE.md does not name")));
        let missing = named.iter().filter(|other| !actual.contains(other));
        found.extend(missing.map(|other| format!("ARCHITECTURE.md says that {name} depends on {other}: it does not")));
        let unusual = known.test_dependencies.iter().filter(|other| !TEST_PACKAGES.contains(&other.as_str()));
        found.extend(unusual.map(|other| format!("tests of {name} use {other}, which is not for tests")));
    }
    let unknown = named.keys().filter(|name| !crates.iter().any(|known| known.name == **name));
    found.extend(unknown.map(|name| format!("ARCHITECTURE.md names {name}, but the workspace has no such package")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str], test_dependencies: &[&str]) -> WorkspaceCrate {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        WorkspaceCrate {
            name: name.into(),
            folder: PathBuf::new(),
            dependencies: owned(dependencies),
            test_dependencies: owned(test_dependencies),
        }
    }

    #[test]
    fn named_dependencies_are_read_from_code_blocks_only() {
        let named =
            named_dependencies("a -> b\n```\n  c/   c -> d, e: text, and -> more\n  f/ f: alone\n```\ng -> h\n");
        assert_eq!(named.len(), 1);
        assert_eq!(named["c"], ["d", "e"]);
    }

    #[test]
    fn a_dependency_that_is_not_named_or_does_not_exist_is_a_difference() {
        let crates = [package("a", &["b"], &["coplay-sim"]), package("b", &[], &[])];
        assert_eq!(differences(&crates, &named_dependencies("```\na -> b\n```")), Vec::<String>::new());
        let found = differences(&crates, &named_dependencies("```\na -> c\nd -> a\n```"));
        assert_eq!(found.len(), 3, "unnamed, missing and unknown: {found:?}");
        let crates = [package("a", &[], &["b"]), package("b", &[], &[])];
        assert_eq!(differences(&crates, &DocumentedDependencies::new()).len(), 1);
    }
}
