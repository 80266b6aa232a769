//! Findings as files.

use super::Entry;
use crate::image;
use crate::table::Table;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What it is called.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl File {
    fn new(name: &str, ending: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: format!("{name}.{ending}"), bytes: bytes.into() }
    }
}

/// The tables and claims as CSV, the figures as SVG and PNG.
pub fn files(entry: &Entry) -> Vec<File> {
    let claims = claims(entry);
    let tables =
        entry.findings.tables.iter().chain([&claims]).map(|table| File::new(&table.name, "csv", table.to_csv()));
    let figures = entry.findings.figures.iter().flat_map(|figure| {
        let svg = figure.to_svg();
        let png = image::png(&svg);
        [File::new(&figure.name, "svg", svg), File::new(&figure.name, "png", png)]
    });
    tables.chain(figures).collect()
}

fn claims(entry: &Entry) -> Table {
    let name = format!("{}-claims", entry.experiment.name);
    let mut table = Table::new(&name, "Claims", &["claim", "paper", "ours", "holds"]);
    for claim in &entry.findings.claims {
        let holds = if claim.holds { "yes" } else { "no" };
        table.row([claim.what.as_str().into(), claim.paper.as_str().into(), claim.ours.as_str().into(), holds.into()]);
    }
    table
}
