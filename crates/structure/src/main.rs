//! Checks the structure of the workspace, and prints it with `--print`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use coplay_structure::StructureError;
use coplay_structure::crate_dependencies::{differences, named_dependencies, read_workspace};
use coplay_structure::graph::ModuleGraph;
use coplay_structure::module_tree::{ModuleId, ModuleTree};
use coplay_structure::session_limit::{MAX_SESSION_FIELDS, measure};

const USAGE: &str = "usage: structure [--print] [FOLDER]
  FOLDER    root of the workspace (default: the current folder)
  --print   print the modules that each module refers to";

fn main() -> ExitCode {
    let mut print = false;
    let mut root = ".".to_owned();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--print" => print = true,
            "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ if arg.starts_with('-') => {
                eprintln!("error: there is no option {arg}\n{USAGE}");
                return ExitCode::from(2);
            }
            _ => root = arg,
        }
    }
    match check(Path::new(&root), print) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            faults.iter().for_each(|fault| eprintln!("structure: {fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}\nhint: FOLDER must be the root of the workspace");
            ExitCode::from(2)
        }
    }
}

/// Returns a sentence for each rule that does not hold.
fn check(root: &Path, print: bool) -> Result<Vec<String>, StructureError> {
    let crates = read_workspace(root)?;
    let document = root.join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&document).map_err(|error| StructureError::Read(document, error))?;
    let mut faults = differences(&crates, &named_dependencies(&text));
    for known in &crates {
        for file in ["src/lib.rs", "src/main.rs"].map(|file| known.folder.join(file)) {
            if file.exists() {
                let tree = ModuleTree::parse(&file)?;
                faults.extend(check_modules(&known.name, &tree, print));
            }
        }
    }
    Ok(faults)
}

fn check_modules(crate_name: &str, tree: &ModuleTree, print: bool) -> Vec<String> {
    let graph = ModuleGraph::new(tree);
    if print {
        print_graph(crate_name, tree, &graph);
    }
    let mut faults = Vec::new();
    for parent in 0..tree.modules.len() {
        let children = graph.of_children(tree, parent);
        let cycles = children.cycles();
        faults.extend(cycles.iter().map(|cycle| {
            describe_cycle(&format!("{crate_name}, within {},", tree.modules[parent].path), tree, &children, cycle)
        }));
    }
    let session = measure(tree, "session", "Session");
    if crate_name == "coplay" && session.is_none() {
        faults.push("coplay has no struct Session in its module session, so its limits were not checked".into());
    }
    if let Some(session) = session {
        if session.impl_modules.len() > 1 {
            faults.push(format!(
                "Session has methods in {} modules: {}",
                session.impl_modules.len(),
                session.impl_modules.join(", ")
            ));
        }
        if session.fields > MAX_SESSION_FIELDS {
            faults.push(format!("Session has {} fields, more than {MAX_SESSION_FIELDS}", session.fields));
        }
    }
    faults
}

fn print_graph(crate_name: &str, tree: &ModuleTree, graph: &ModuleGraph) {
    println!("{crate_name}");
    for (module, edges) in tree.modules.iter().zip(&graph.edges) {
        let names: Vec<&str> = edges.keys().map(|id| tree.modules[*id].path.as_str()).collect();
        println!("  {} -> {}", module.path, names.join(", "));
    }
}

fn describe_cycle(crate_name: &str, tree: &ModuleTree, graph: &ModuleGraph, cycle: &BTreeSet<ModuleId>) -> String {
    let mut text = format!("{crate_name} has a cycle of {} modules:", cycle.len());
    for id in cycle {
        for (to, reference) in graph.edges[*id].iter().filter(|(to, _)| cycle.contains(to)) {
            let (from, to) = (&tree.modules[*id].path, &tree.modules[*to].path);
            let place = format!("{}:{}: {}", reference.file.display(), reference.line, reference.path);
            text.push_str(&format!("\n    {from} -> {to} ({place})"));
        }
    }
    text
}
