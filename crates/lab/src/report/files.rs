//! Converts the findings of an experiment to files.

use super::ReportEntry;
use crate::figure_png;
use crate::table::DataTable;

/// Name and contents of a file of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportFile {
    /// File name with its extension.
    pub name: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

impl ReportFile {
    fn new(name: &str, extension: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: format!("{name}.{extension}"), bytes: bytes.into() }
    }
}

/// Returns the tables and claims of an experiment as CSV files and its figures as SVG and PNG files.
pub fn files(entry: &ReportEntry) -> Vec<ReportFile> {
    let claims = claims_table(entry);
    let tables =
        entry.findings.tables.iter().chain([&claims]).map(|table| ReportFile::new(&table.name, "csv", table.to_csv()));
    let figures = entry.findings.figures.iter().flat_map(|figure| {
        let svg = figure.to_svg();
        let png = figure_png::render_png(&svg);
        [ReportFile::new(&figure.name, "svg", svg), ReportFile::new(&figure.name, "png", png)]
    });
    tables.chain(figures).collect()
}

fn claims_table(entry: &ReportEntry) -> DataTable {
    let name = format!("{}-claims", entry.experiment.name);
    let mut table = DataTable::new(&name, "Claims", &["claim", "paper", "ours", "holds"]);
    for claim in &entry.findings.claims {
        let holds = if claim.holds { "yes" } else { "no" };
        table.add_row([
            claim.statement.as_str().into(),
            claim.paper.as_str().into(),
            claim.ours.as_str().into(),
            holds.into(),
        ]);
    }
    table
}
