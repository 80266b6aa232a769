//! The graph of references between the modules of a crate, and its cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::module_tree::{ModuleId, ModuleTree, PathTarget};

/// References between the modules of one crate.
#[derive(Debug)]
pub struct ModuleGraph {
    /// For each module, the modules that it refers to, with one such path and its line.
    pub edges: Vec<BTreeMap<ModuleId, Reference>>,
}

/// One place at which a module refers to another.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The file that contains the path.
    pub file: PathBuf,
    /// The path as written.
    pub path: String,
    /// Line of the path.
    pub line: usize,
}

impl ModuleGraph {
    /// Resolves all references of a crate's modules.
    pub fn new(tree: &ModuleTree) -> Self {
        let mut edges = vec![BTreeMap::new(); tree.modules.len()];
        for (id, module) in tree.modules.iter().enumerate() {
            for (path, line) in &module.references {
                let Some(to) = referred_module(tree, id, path) else { continue };
                let reference = Reference { file: module.file.clone(), path: path.join("::"), line: *line };
                edges[id].entry(to).or_insert(reference);
            }
        }
        Self { edges }
    }

    /// Returns the graph of the children of `parent`: each child stands for all modules within it. References to
    /// modules outside of `parent`, and to items of `parent` itself, are left out.
    pub fn of_children(&self, tree: &ModuleTree, parent: ModuleId) -> Self {
        let child_of = |module: ModuleId| {
            let mut lineage = std::iter::successors(Some(module), |id| tree.modules[*id].parent);
            lineage.find(|id| tree.modules[*id].parent == Some(parent))
        };
        let mut edges = vec![BTreeMap::new(); self.edges.len()];
        for (id, references) in self.edges.iter().enumerate() {
            let Some(from) = child_of(id) else { continue };
            for (to, reference) in references {
                if let Some(to) = child_of(*to).filter(|to| *to != from) {
                    edges[from].entry(to).or_insert_with(|| reference.clone());
                }
            }
        }
        Self { edges }
    }

    /// Returns the cycles: sets of modules each of which refers to every other, directly or through others.
    pub fn cycles(&self) -> Vec<BTreeSet<ModuleId>> {
        let reachable: Vec<BTreeSet<ModuleId>> = (0..self.edges.len()).map(|from| self.reachable_from(from)).collect();
        let mut cycles: Vec<BTreeSet<ModuleId>> = Vec::new();
        for from in 0..self.edges.len() {
            let cycle: BTreeSet<ModuleId> =
                reachable[from].iter().copied().filter(|to| reachable[*to].contains(&from)).collect();
            if !cycle.is_empty() && !cycles.contains(&cycle) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// Returns the modules that a module refers to, directly or through others; itself only if it is part of a cycle.
    fn reachable_from(&self, from: ModuleId) -> BTreeSet<ModuleId> {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            open.extend(self.edges[module].keys().copied().filter(|to| found.insert(*to)));
        }
        found
    }
}

/// Returns the module, other than `from`, that a path refers to. A path of one name that is a module counts only where
/// it is an import; in code it is a local variable of the same name.
fn referred_module(tree: &ModuleTree, from: ModuleId, path: &[String]) -> Option<ModuleId> {
    let target = match tree.resolve(from, path)? {
        PathTarget::Item(module) => module,
        // `use super::module;` refers to nothing yet; the paths that begin with its name do.
        PathTarget::Module(_) => return None,
    };
    (target != from).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a crate into a folder of its own, and returns the cycles of its modules by path.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = ModuleTree::parse(&folder.path().join("lib.rs")).unwrap();
        let graph = ModuleGraph::new(&tree);
        let of_parent = |parent| graph.of_children(&tree, parent).cycles();
        let cycles = (0..tree.modules.len()).flat_map(of_parent);
        cycles.map(|cycle| cycle.iter().map(|id| tree.modules[*id].path.clone()).collect()).collect()
    }

    #[test]
    fn modules_that_refer_to_each_other_are_a_cycle() {
        let a = ("a.rs", "pub struct A; fn f(_: crate::b::B) {}");
        assert_eq!(cycles_of(&[("lib.rs", "mod a; mod b;"), a, ("b.rs", "pub struct B;")]), Vec::<Vec<String>>::new());
        let b = ("b.rs", "use super::a::A; pub struct B(A);");
        assert_eq!(cycles_of(&[("lib.rs", "mod a; mod b;"), a, b]), [["a", "b"]]);
    }

    #[test]
    fn a_reference_counts_for_the_module_that_defines_the_item() {
        let root = "mod a; mod b; pub use a::A; pub use b::*;";
        let a = ("a.rs", "pub struct A; fn f(_: crate::B) {}");
        let b = ("b.rs", "pub struct B; fn f() { let _ = vec![crate::A]; }");
        assert_eq!(cycles_of(&[("lib.rs", root), a, b]), [["a", "b"]], "through re-exports, a glob and a macro");
    }

    #[test]
    fn a_folder_counts_as_one_module() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod one; pub mod two;"),
            ("a/one.rs", "use crate::b::B; pub struct One(B);"),
            ("a/two.rs", "pub struct Two;"),
            ("b.rs", "use crate::a::two::Two; pub struct B(Two);"),
        ];
        assert_eq!(cycles_of(&files), [["a", "b"]], "no file refers back to itself, but the folders do");
    }

    #[test]
    fn tests_and_the_parent_do_not_count() {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct Root(a::A);"),
            ("a.rs", "pub struct A; fn f(_: crate::Root) {} #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ];
        assert_eq!(cycles_of(&files), Vec::<Vec<String>>::new());
    }
}
