//! The results of an experiment: parameters, tables, figures and claims.

use crate::plot::Figure;
use crate::table::DataTable;

/// The results of an experiment, from which the report is written.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Parameters of the run: name and value.
    pub parameters: Vec<(String, String)>,
    /// Measured data, each table with its own CSV file.
    pub tables: Vec<DataTable>,
    /// Plots of the data.
    pub figures: Vec<Figure>,
    /// Statements checked against the data.
    pub claims: Vec<Claim>,
    /// Remarks for the report, such as our reasons for choices that the paper leaves open.
    pub notes: Vec<String>,
}

/// A statement about the data, and whether the data confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claim, as one sentence.
    pub statement: String,
    /// The paper's result, or a remark that the paper has none.
    pub paper: String,
    /// Our result, with its numbers.
    pub ours: String,
    /// Whether our data confirm the statement.
    pub holds: bool,
}

impl Findings {
    /// Adds a parameter of the run, for the report.
    pub fn add_parameter(&mut self, name: &str, value: impl Into<String>) {
        self.parameters.push((name.into(), value.into()));
    }

    /// Adds a claim with the paper's result and ours; `holds` is whether our data confirm the statement.
    pub fn add_claim(&mut self, statement: &str, paper: &str, ours: impl Into<String>, holds: bool) {
        self.claims.push(Claim { statement: statement.into(), paper: paper.into(), ours: ours.into(), holds });
    }

    /// Adds a remark for the report.
    pub fn add_note(&mut self, note: &str) {
        self.notes.push(note.into());
    }

    /// Returns whether all claims hold; `true` if there are none.
    pub fn all_claims_hold(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

impl Claim {
    /// Formats the claim as one line: verdict, statement, the paper's result and ours.
    pub fn to_line(&self) -> String {
        let verdict = if self.holds { "holds" } else { "DOES NOT HOLD" };
        format!("{verdict}: {}; paper: {}; ours: {}", self.statement, self.paper, self.ours)
    }
}
