//! The HTML report page.

use super::ReportEntry;
use crate::experiment::PaperInfo;
use crate::findings::Claim;
use crate::plot::{escape_xml, style};
use crate::table::{DataTable, TableCell};

/// Returns one self-contained HTML page with all entries. `command` is the command line that reproduces the page.
pub fn page(entries: &[ReportEntry], seed: u64, command: &str) -> String {
    let style = format!("{}{}", include_str!("page.css"), style::page_css());
    let sections: String =
        entries.iter().enumerate().map(|(index, entry)| experiment_section(index + 1, entry)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Coplay lab report</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         {}<main>\n{}{sections}</main>\n{}</body>\n</html>\n",
        page_header(entries, seed, command),
        contents_table(entries),
        page_footer(entries),
    )
}

fn page_header(entries: &[ReportEntry], seed: u64, command: &str) -> String {
    let claims: Vec<&Claim> = entries.iter().flat_map(|entry| &entry.findings.claims).collect();
    let hold = claims.iter().filter(|claim| claim.holds).count();
    let figures: usize = entries.iter().map(|entry| entry.findings.figures.len()).sum();
    let number = |number: usize, label: &str| format!("<div><b>{number}</b><span>{label}</span></div>\n");
    format!(
        "<header>\n<p class=\"kicker\">Coplay lab</p>\n<h1>Published experiments: our results beside the papers’ results</h1>\n\
         <p class=\"lead\">Experiments on keeping replicas of a game in step, repeated with the Coplay engine. \
         All runs are in virtual time and exactly reproducible from one seed.</p>\n<div class=\"sums\">\n{}{}{}\
         <div class=\"{}\"><b>{hold} of {}</b><span>claims hold</span></div>\n</div>\n\
         <p class=\"command\">Seed {seed}. Command: <code>{}</code></p>\n</header>\n",
        number(papers(entries).len(), if papers(entries).len() == 1 { "paper" } else { "papers" }),
        number(entries.len(), if entries.len() == 1 { "experiment" } else { "experiments" }),
        number(figures, if figures == 1 { "figure" } else { "figures" }),
        if hold == claims.len() { "good" } else { "bad" },
        claims.len(),
        escape_xml(command),
    )
}

/// Returns the papers of the entries, in the order of the entries. A paper is listed once if its entries are adjacent.
fn papers(entries: &[ReportEntry]) -> Vec<&'static PaperInfo> {
    let mut papers: Vec<&'static PaperInfo> = entries.iter().map(|entry| entry.experiment.paper).collect();
    papers.dedup();
    papers
}

fn contents_table(entries: &[ReportEntry]) -> String {
    let row = |(index, entry): (usize, &ReportEntry)| {
        let claims = &entry.findings.claims;
        let hold = claims.iter().filter(|claim| claim.holds).count();
        let class = if hold == claims.len() { "good" } else { "bad" };
        format!(
            "<tr><td class=\"index\">{}</td><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td><td class=\"{class}\">{hold} of {}</td></tr>\n",
            index + 1,
            entry.experiment.name,
            escape_xml(entry.experiment.title),
            entry.experiment.paper.letter,
            escape_xml(entry.experiment.paper_figures),
            claims.len()
        )
    };
    let rows: String = entries.iter().enumerate().map(row).collect();
    format!(
        "<nav>\n<table class=\"contents\">\n<thead><tr><th></th><th>experiment</th><th>paper</th><th>paper’s figures</th><th>claims that hold</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table>\n</nav>\n"
    )
}

fn experiment_section(number: usize, entry: &ReportEntry) -> String {
    let (experiment, findings) = (entry.experiment, &entry.findings);
    let figures: String = findings
        .figures
        .iter()
        .map(|figure| {
            format!(
                "<figure>\n<h3>{}</h3>\n<div class=\"frame\">{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
                escape_xml(&figure.title),
                figure.to_inline_svg(),
                escape_xml(&figure.caption)
            )
        })
        .collect();
    let tables: String = findings.tables.iter().map(data_table).collect();
    let notes: String = findings.notes.iter().map(|note| format!("<li>{}</li>\n", escape_xml(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<h3>Notes</h3>\n<ul>\n{notes}</ul>\n") };
    format!(
        "<section id=\"{}\">\n<h2><span class=\"index\">{number}</span> {}</h2>\n<p class=\"lead\">{}</p>\n<p class=\"source\">{}, {}.</p>\n<div class=\"beside\">\n{}\n<aside>\n{}</aside>\n</div>\n\
         {figures}<div class=\"tables\">\n{tables}{notes}</div>\n</section>\n",
        experiment.name,
        escape_xml(experiment.title),
        backticks_to_code(experiment.summary),
        escape_xml(experiment.paper.authors),
        escape_xml(experiment.paper_figures),
        claims_table(&findings.claims),
        parameters_list(entry),
    )
}

fn claims_table(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let (class, sign, word) = if claim.holds { ("good", "✓", "holds") } else { ("bad", "✗", "does not hold") };
        format!(
            "<tr><td class=\"{class}\"><span class=\"sign\">{sign}</span> {word}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape_xml(&claim.statement),
            escape_xml(&claim.paper),
            escape_xml(&claim.ours)
        )
    };
    let rows: String = claims.iter().map(row).collect();
    format!(
        "<table class=\"claims\">\n<thead><tr><th></th><th>claim</th><th>paper’s result</th><th>our result</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>"
    )
}

fn parameters_list(entry: &ReportEntry) -> String {
    let row =
        |(name, value): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape_xml(name), escape_xml(value));
    let rows: String = entry.findings.parameters.iter().map(row).collect();
    format!(
        "<h3>Parameters</h3>\n<dl>\n{rows}</dl>\n<h3>Command</h3>\n<p><code>{}</code></p>\n",
        escape_xml(&entry.command)
    )
}

/// Largest number of rows of a table that the page shows unfolded.
const MAX_OPEN_ROWS: usize = 12;

fn data_table(table: &DataTable) -> String {
    let head: String =
        table.columns.iter().map(|column| format!("<th>{}</th>", escape_xml(&column.replace('_', " ")))).collect();
    let cell = |cell: &TableCell| {
        let class = if matches!(cell, TableCell::Number(..)) { " class=\"number\"" } else { "" };
        format!("<td{class}>{}</td>", escape_xml(&cell.to_string()))
    };
    let row = |row: &Vec<TableCell>| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
    let rows: String = table.rows.iter().map(row).collect();
    let open = if table.rows.len() <= MAX_OPEN_ROWS { " open" } else { "" };
    format!(
        "<details{open}>\n<summary>{} <span>{} rows, {}.csv</span></summary>\n<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</details>\n",
        escape_xml(&table.title),
        table.rows.len(),
        escape_xml(&table.name)
    )
}

/// Formats the text between backticks as code and escapes the rest.
fn backticks_to_code(text: &str) -> String {
    let part = |(index, part): (usize, &str)| {
        if index % 2 == 1 { format!("<code>{}</code>", escape_xml(part)) } else { escape_xml(part) }
    };
    text.split('`').enumerate().map(part).collect()
}

fn page_footer(entries: &[ReportEntry]) -> String {
    let row = |paper: &&PaperInfo| {
        format!(
            "<li><b>{}</b> {}: <cite>{}</cite>.</li>\n",
            paper.letter,
            escape_xml(paper.authors),
            escape_xml(paper.title)
        )
    };
    let rows: String = papers(entries).iter().map(row).collect();
    format!("<footer>\n<h2>Papers</h2>\n<ul>\n{rows}</ul>\n</footer>\n")
}
