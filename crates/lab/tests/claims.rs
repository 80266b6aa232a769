//! Tests that every claim of every experiment holds in its short version, that equal seeds give equal tables (in seven
//! experiments, with one and three threads), and that the report is complete and self-contained.

use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::catalog;
use coplay_lab::experiment::Experiment;
use coplay_lab::report::{self, ReportEntry};

fn run_experiment(experiment: &'static Experiment, seed: u64, threads: usize) -> ReportEntry {
    let mut context = ExperimentContext::new(seed, ExperimentLength::Short, threads, &|_| {});
    let findings = (experiment.run)(&mut context);
    ReportEntry { experiment, findings, command: format!("coplay-lab run {} --seed {seed}", experiment.name) }
}

#[track_caller]
fn assert_holds(name: &str) {
    let experiment = catalog::find(name).expect("the experiment exists");
    let entry = run_experiment(experiment, 1, 2);
    let broken: Vec<String> =
        entry.findings.claims.iter().filter(|claim| !claim.holds).map(|claim| claim.to_line()).collect();
    assert!(broken.is_empty(), "{broken:#?}\nfull run: {}", entry.command);
    assert!(
        !entry.findings.claims.is_empty() && !entry.findings.tables.is_empty() && !entry.findings.figures.is_empty()
    );
}

/// Defines one test per experiment, which asserts that all its claims hold.
macro_rules! claim_tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                assert_holds(stringify!($name));
            }
        )*

        #[test]
        fn no_experiment_is_left_out() {
            let tested = [$(stringify!($name)),*];
            let all: Vec<&str> = catalog::ALL.iter().map(|experiment| experiment.name).collect();
            assert_eq!(tested.as_slice(), all);
        }
    };
}

claim_tests! { pacing players loss spectators latecomers buffer packets resync step overrun policies moments rate reckonable thinning bursts quiet regions timers share threshold delays drops choices }

fn csv_tables(entry: &ReportEntry) -> Vec<(String, String)> {
    entry.findings.tables.iter().map(|table| (table.name.clone(), table.to_csv())).collect()
}

#[test]
fn same_seed_gives_same_tables_for_any_number_of_threads() {
    for name in ["pacing", "loss", "resync", "packets", "bursts", "timers", "choices"] {
        let experiment = catalog::find(name).expect("the experiment exists");
        let first = csv_tables(&run_experiment(experiment, 7, 1));
        assert!(first == csv_tables(&run_experiment(experiment, 7, 3)), "{name} changes with three threads");
        assert!(first != csv_tables(&run_experiment(experiment, 8, 3)), "{name} ignores its seed");
    }
}

#[test]
fn report_files_have_unique_names_and_page_is_self_contained() {
    let entries: Vec<ReportEntry> =
        ["loss", "overrun"].map(|name| run_experiment(catalog::find(name).unwrap(), 1, 2)).into();
    let files: Vec<report::ReportFile> = entries.iter().flat_map(report::files).collect();
    let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    for name in ["loss.csv", "loss.svg", "loss.png", "loss-claims.csv", "overrun.csv", "overrun.png"] {
        assert!(names.contains(&name), "{names:?}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), files.len());
    let page = report::page(&entries, 1, "coplay-lab report --seed 1");
    for part in [
        "<svg",
        "coplay-lab run loss --seed 1",
        "coplay-lab run overrun --seed 1",
        "prefers-color-scheme:dark",
        "Parameters",
    ] {
        assert!(page.contains(part), "the page lacks {part}");
    }
    let external_references = ["src=", "<link", "@import", "url(", "<script"];
    assert!(external_references.iter().all(|part| !page.contains(part)), "the page fetches external resources");
}
