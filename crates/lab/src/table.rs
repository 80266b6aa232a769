//! Tables, and how they are written down.

use std::fmt::{self, Write as _};

/// Columns and rows.
#[derive(Clone, Debug)]
pub struct Table {
    /// What its file is called.
    pub name: String,
    /// What is in it.
    pub title: String,
    /// The names of the columns, with the unit at the end where there is one.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// What is in a row under a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing: it was not measured, or there is no such thing.
    Nothing,
    /// Words.
    Text(String),
    /// A number and its decimals.
    Number(f64, usize),
}

impl Table {
    /// A table without rows.
    pub fn new(name: &str, title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).into()).collect();
        Self { name: name.into(), title: title.into(), columns, rows: Vec::new() }
    }

    /// One more row, of as many cells as there are columns.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a row of {}", self.name);
        self.rows.push(row);
    }

    /// As comma-separated values: the same bytes for the same numbers.
    pub fn to_csv(&self) -> String {
        let mut text = line(self.columns.iter().map(|column| quoted(column)));
        for row in &self.rows {
            text += &line(row.iter().map(|cell| quoted(&cell.to_string())));
        }
        text
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<String>>().join(",") + "\n"
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
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

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A number with so many decimals.
pub fn number(value: f64, decimals: usize) -> Cell {
    Cell::Number(value, decimals)
}

/// A whole number.
pub fn whole(value: impl Into<i64>) -> Cell {
    Cell::Number(value.into() as f64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_comma_separated() {
        let mut table = Table::new("t", "a table", &["what", "time_ms", "loss"]);
        table.row(["a, b".into(), number(1.25, 1), Cell::Nothing]);
        table.row(["say \"x\"".into(), number(-0.001, 2), whole(7)]);
        assert_eq!(table.to_csv(), "what,time_ms,loss\n\"a, b\",1.2,\n\"say \"\"x\"\"\",0.00,7\n");
    }
}
