//! Dependencies between the crates of the workspace, as the manifests have them and as `ARCHITECTURE.md` names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::StructureError;

/// A crate of the workspace.
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

/// Dependencies as the documentation names them: by package, what it may depend on; tests have entries of their own,
/// with `tests` after the name of the package.
pub type NamedDependencies = BTreeMap<String, Vec<String>>;

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

/// Returns the dependencies that a document names: lines such as `coplay-net -> coplay, coplay-machines` inside code
/// blocks.
pub fn named_dependencies(document: &str) -> NamedDependencies {
    let mut is_code = false;
    let mut named = NamedDependencies::new();
    for line in document.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some((name, dependencies)) = line.split_once("->").filter(|_| is_code) {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let dependencies = dependencies.split(',').map(words).filter(|name| !name.is_empty()).collect();
            named.insert(words(name), dependencies);
        }
    }
    named
}

/// Returns a sentence for each dependency that is not named, and for each named one that does not exist.
pub fn differences(crates: &[WorkspaceCrate], named: &NamedDependencies) -> Vec<String> {
    let mut differences = Vec::new();
    for known in crates {
        let lists =
            [(known.name.clone(), &known.dependencies), (format!("{} tests", known.name), &known.test_dependencies)];
        for (subject, actual) in lists {
            let named = named.get(&subject).map_or(&[][..], Vec::as_slice);
            let unnamed = actual.iter().filter(|name| !named.contains(name));
            differences.extend(
                unnamed.map(|name| format!("{subject} depends on {name}, which ARCHITECTURE.md does not name")),
            );
            let missing = named.iter().filter(|name| !actual.contains(name));
            differences.extend(
                missing.map(|name| format!("ARCHITECTURE.md says that {subject} depends on {name}, but it does not")),
            );
        }
    }
    let subjects = crates.iter().flat_map(|known| [known.name.clone(), format!("{} tests", known.name)]);
    let subjects: Vec<String> = subjects.collect();
    let unknown = named.keys().filter(|name| !subjects.contains(name));
    differences
        .extend(unknown.map(|name| format!("ARCHITECTURE.md names {name}, but the workspace has no such package")));
    differences
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
        let named = named_dependencies("a -> b\n```\nc    -> d, e\nc tests -> f\n```\ng -> h\n");
        assert_eq!(named.len(), 2);
        assert_eq!(named["c"], ["d", "e"]);
        assert_eq!(named["c tests"], ["f"]);
    }

    #[test]
    fn a_dependency_that_is_not_named_or_does_not_exist_is_a_difference() {
        let crates = [package("a", &["b"], &["c"]), package("b", &[], &[]), package("c", &[], &[])];
        let exact = named_dependencies("```\na -> b\na tests -> c\n```");
        assert_eq!(differences(&crates, &exact), Vec::<String>::new());
        let wrong = named_dependencies("```\na -> c\nd -> a\n```");
        let found = differences(&crates, &wrong);
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
