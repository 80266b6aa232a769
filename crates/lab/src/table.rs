//! Data tables and their CSV form.

use std::fmt::{self, Write as _};

/// A table of named columns.
#[derive(Clone, Debug)]
pub struct DataTable {
    /// File name without the extension.
    pub name: String,
    /// Title in the report.
    pub title: String,
    /// Column names, ending in the unit where there is one.
    pub columns: Vec<String>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<TableCell>>,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableCell {
    /// Not measured, or not applicable.
    Empty,
    /// Text, such as a name or a label.
    Text(String),
    /// A number and its count of decimals.
    Number(f64, usize),
}

impl DataTable {
    /// Creates a table without rows.
    pub fn new(name: &str, title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).into()).collect();
        Self { name: name.into(), title: title.into(), columns, rows: Vec::new() }
    }

    /// Adds a row. Panics unless it has one cell per column.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        let row: Vec<TableCell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "wrong number of cells in a row of table {}", self.name);
        self.rows.push(row);
    }

    /// Formats the table as CSV. Equal numbers give equal bytes.
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
                // A value that rounds to zero gets no minus sign.
                let is_zero = text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.'));
                f.write_str(if is_zero { text.trim_start_matches('-') } else { &text })
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

/// Creates a cell with a number, shown with `decimals` decimals.
pub fn number(value: f64, decimals: usize) -> TableCell {
    TableCell::Number(value, decimals)
}

/// Creates a cell with a whole number.
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
