//! Tables, and how they are written down.

use std::fmt::{self, Write as _};

/// Columns and rows.
#[derive(Clone, Debug)]
pub struct DataTable {
    /// What its file is called.
    pub name: String,
    /// What is in it.
    pub title: String,
    /// The names of the columns, with the unit at the end where there is one.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<TableCell>>,
}

/// What is in a row under a column.
#[derive(Clone, Debug, PartialEq)]
pub enum TableCell {
    /// Nothing: it was not measured, or there is no such thing.
    Empty,
    /// Words.
    Text(String),
    /// A number and its decimals.
    Number(f64, usize),
}

impl DataTable {
    /// A table without rows.
    pub fn new(name: &str, title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).into()).collect();
        Self { name: name.into(), title: title.into(), columns, rows: Vec::new() }
    }

    /// One more row, of as many cells as there are columns.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        let row: Vec<TableCell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a row of {}", self.name);
        self.rows.push(row);
    }

    /// As comma-separated values: the same bytes for the same numbers.
    pub fn to_csv(&self) -> String {
        let mut text = csv_line(self.columns.iter().map(|column| csv_quoted(column)));
        for row in &self.rows {
            text += &csv_line(row.iter().map(|cell| csv_quoted(&cell.to_string())));
        }
        text
    }
}

fn csv_line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<String>>().join(",") + "\n"
}

fn csv_quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

impl fmt::Display for TableCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Number(number, decimals) => {
                let mut text = String::new();
                write!(text, "{number:.decimals$}")?;
                // What rounds to nothing has no sign.
                let is_nothing = text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.'));
                f.write_str(if is_nothing { text.trim_start_matches('-') } else { &text })
            }
        }
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A number with so many decimals.
pub fn number(value: f64, decimals: usize) -> TableCell {
    TableCell::Number(value, decimals)
}

/// A whole number.
pub fn integer(value: impl Into<i64>) -> TableCell {
    TableCell::Number(value.into() as f64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_written_as_quoted_csv() {
        let mut table = DataTable::new("t", "a table", &["what", "time_ms", "loss"]);
        table.add_row(["a, b".into(), number(1.25, 1), TableCell::Empty]);
        table.add_row(["say \"x\"".into(), number(-0.001, 2), integer(7)]);
        assert_eq!(table.to_csv(), "what,time_ms,loss\n\"a, b\",1.2,\n\"say \"\"x\"\"\",0.00,7\n");
    }
}
