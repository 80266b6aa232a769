//! Every claim of every experiment holds, in short versions of them; and a seed always gives the same.

use coplay_lab::bench::{Bench, Length};
use coplay_lab::catalog;
use coplay_lab::experiment::Experiment;
use coplay_lab::report::{self, Entry};

fn run(experiment: &'static Experiment, seed: u64, threads: usize) -> Entry {
    let mut bench = Bench::new(seed, Length::Short, threads, &|_| {});
    let findings = (experiment.run)(&mut bench);
    Entry { experiment, findings, command: format!("coplay lab run {} --seed {seed}", experiment.name) }
}

#[track_caller]
fn assert_holds(name: &str) {
    let experiment = catalog::find(name).expect("there is such an experiment");
    let entry = run(experiment, 1, 2);
    let broken: Vec<String> =
        entry.findings.claims.iter().filter(|claim| !claim.holds).map(|claim| claim.line()).collect();
    assert!(broken.is_empty(), "{broken:#?}\nall of it: {}", entry.command);
    assert!(
        !entry.findings.claims.is_empty() && !entry.findings.tables.is_empty() && !entry.findings.figures.is_empty()
    );
}

/// A test for each experiment.
macro_rules! hold {
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

hold! { pacing players loss spectators latecomers buffer packets resync step overrun policies moments rate reckonable thinning bursts quiet regions timers share threshold delays drops choices }

fn tables(entry: &Entry) -> Vec<(String, String)> {
    entry.findings.tables.iter().map(|table| (table.name.clone(), table.to_csv())).collect()
}

#[test]
fn a_seed_always_gives_the_same_whatever_the_number_of_threads() {
    for name in ["pacing", "loss", "resync", "packets", "bursts", "timers", "choices"] {
        let experiment = catalog::find(name).expect("there is such an experiment");
        let first = tables(&run(experiment, 7, 1));
        assert!(first == tables(&run(experiment, 7, 3)), "{name} is not the same with three threads");
        assert!(first != tables(&run(experiment, 8, 3)), "{name} does not depend on its seed");
    }
}

#[test]
fn files_have_names_of_their_own_and_the_page_has_everything_in_it() {
    let entries: Vec<Entry> = ["loss", "overrun"].map(|name| run(catalog::find(name).unwrap(), 1, 2)).into();
    let files: Vec<report::File> = entries.iter().flat_map(report::files).collect();
    let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    for name in ["loss.csv", "loss.svg", "loss.png", "loss-claims.csv", "overrun.csv", "overrun.png"] {
        assert!(names.contains(&name), "{names:?}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), files.len());
    let page = report::page(&entries, 1, "coplay lab report --seed 1");
    for part in [
        "<svg",
        "coplay lab run loss --seed 1",
        "coplay lab run overrun --seed 1",
        "prefers-color-scheme:dark",
        "Parameters",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let outside = ["src=", "<link", "@import", "url(", "<script"];
    assert!(outside.iter().all(|part| !page.contains(part)), "the page fetches something");
}
