//! The page.

use super::Entry;
use crate::experiment::Paper;
use crate::findings::Claim;
use crate::plot::{escaped, style};
use crate::table::{Cell, Table};

/// One page with everything, that opens from disk. `command` makes it again.
pub fn page(entries: &[Entry], seed: u64, command: &str) -> String {
    let style = format!("{}{}", include_str!("page.css"), style::of_a_page());
    let sections: String = entries.iter().enumerate().map(|(at, entry)| section(at + 1, entry)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Coplay lab report</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         {}<main>\n{}{sections}</main>\n{}</body>\n</html>\n",
        head(entries, seed, command),
        contents(entries),
        foot(entries),
    )
}

fn head(entries: &[Entry], seed: u64, command: &str) -> String {
    let claims: Vec<&Claim> = entries.iter().flat_map(|entry| &entry.findings.claims).collect();
    let hold = claims.iter().filter(|claim| claim.holds).count();
    let figures: usize = entries.iter().map(|entry| entry.findings.figures.len()).sum();
    let number = |number: usize, what: &str| format!("<div><b>{number}</b><span>{what}</span></div>\n");
    format!(
        "<header>\n<p class=\"kicker\">Coplay · the lab</p>\n<h1>The papers’ experiments, ours beside theirs</h1>\n\
         <p class=\"lead\">What was measured about keeping replicas of a game in step, measured again with the engine of Coplay: \
         in virtual time, exactly repeatable, from one seed.</p>\n<div class=\"sums\">\n{}{}{}\
         <div class=\"{}\"><b>{hold} of {}</b><span>claims hold</span></div>\n</div>\n\
         <p class=\"again\">Seed {seed}. Make it again: <code>{}</code></p>\n</header>\n",
        number(papers(entries).len(), if papers(entries).len() == 1 { "paper" } else { "papers" }),
        number(entries.len(), if entries.len() == 1 { "experiment" } else { "experiments" }),
        number(figures, if figures == 1 { "figure" } else { "figures" }),
        if hold == claims.len() { "good" } else { "bad" },
        claims.len(),
        escaped(command),
    )
}

/// The papers, in their order.
fn papers(entries: &[Entry]) -> Vec<&'static Paper> {
    let mut papers: Vec<&'static Paper> = entries.iter().map(|entry| entry.experiment.paper).collect();
    papers.dedup();
    papers
}

fn contents(entries: &[Entry]) -> String {
    let row = |(at, entry): (usize, &Entry)| {
        let claims = &entry.findings.claims;
        let hold = claims.iter().filter(|claim| claim.holds).count();
        let class = if hold == claims.len() { "good" } else { "bad" };
        format!(
            "<tr><td class=\"index\">{}</td><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td><td class=\"{class}\">{hold} of {}</td></tr>\n",
            at + 1,
            entry.experiment.name,
            escaped(entry.experiment.title),
            entry.experiment.paper.letter,
            escaped(entry.experiment.figures),
            claims.len()
        )
    };
    let rows: String = entries.iter().enumerate().map(row).collect();
    format!(
        "<nav>\n<table class=\"contents\">\n<thead><tr><th></th><th>experiment</th><th>paper</th><th>there</th><th>claims that hold</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table>\n</nav>\n"
    )
}

fn section(number: usize, entry: &Entry) -> String {
    let (experiment, findings) = (entry.experiment, &entry.findings);
    let figures: String = findings
        .figures
        .iter()
        .map(|figure| {
            format!(
                "<figure>\n<h3>{}</h3>\n<div class=\"frame\">{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
                escaped(&figure.title),
                figure.to_inline_svg(),
                escaped(&figure.caption)
            )
        })
        .collect();
    let tables: String = findings.tables.iter().map(table).collect();
    let notes: String = findings.notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<h3>Choices</h3>\n<ul>\n{notes}</ul>\n") };
    format!(
        "<section id=\"{}\">\n<h2><span class=\"index\">{number}</span> {}</h2>\n<p class=\"lead\">{}</p>\n<p class=\"source\">{}, {}.</p>\n<div class=\"beside\">\n{}\n<aside>\n{}</aside>\n</div>\n\
         {figures}<div class=\"tables\">\n{tables}{notes}</div>\n</section>\n",
        experiment.name,
        escaped(experiment.title),
        code_marked(experiment.shows),
        escaped(experiment.paper.authors),
        escaped(experiment.figures),
        claims(&findings.claims),
        parameters(entry),
    )
}

fn claims(claims: &[Claim]) -> String {
    let row = |claim: &Claim| {
        let (class, sign, word) = if claim.holds { ("good", "✓", "holds") } else { ("bad", "✗", "does not hold") };
        format!(
            "<tr><td class=\"{class}\"><span class=\"sign\">{sign}</span> {word}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escaped(&claim.what),
            escaped(&claim.paper),
            escaped(&claim.ours)
        )
    };
    let rows: String = claims.iter().map(row).collect();
    format!(
        "<table class=\"claims\">\n<thead><tr><th></th><th>claim</th><th>the paper</th><th>ours</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>"
    )
}

fn parameters(entry: &Entry) -> String {
    let row = |(name, value): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
    let rows: String = entry.findings.parameters.iter().map(row).collect();
    format!("<h3>Parameters</h3>\n<dl>\n{rows}</dl>\n<h3>Again</h3>\n<p><code>{}</code></p>\n", escaped(&entry.command))
}

/// More rows than these are folded away.
const MOST_ROWS: usize = 12;

fn table(table: &Table) -> String {
    let head: String =
        table.columns.iter().map(|column| format!("<th>{}</th>", escaped(&column.replace('_', " ")))).collect();
    let cell = |cell: &Cell| {
        let class = if matches!(cell, Cell::Number(..)) { " class=\"number\"" } else { "" };
        format!("<td{class}>{}</td>", escaped(&cell.to_string()))
    };
    let row = |row: &Vec<Cell>| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
    let rows: String = table.rows.iter().map(row).collect();
    let open = if table.rows.len() <= MOST_ROWS { " open" } else { "" };
    format!(
        "<details{open}>\n<summary>{} <span>{} rows, {}.csv</span></summary>\n<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</details>\n",
        escaped(&table.title),
        table.rows.len(),
        escaped(&table.name)
    )
}

/// What stands between backticks is code.
fn code_marked(text: &str) -> String {
    let part = |(at, part): (usize, &str)| {
        if at % 2 == 1 { format!("<code>{}</code>", escaped(part)) } else { escaped(part) }
    };
    text.split('`').enumerate().map(part).collect()
}

fn foot(entries: &[Entry]) -> String {
    let row = |paper: &&Paper| {
        format!("<li><b>{}</b> {}: <cite>{}</cite>.</li>\n", paper.letter, escaped(paper.authors), escaped(paper.title))
    };
    let rows: String = papers(entries).iter().map(row).collect();
    format!("<footer>\n<h2>Papers</h2>\n<ul>\n{rows}</ul>\n</footer>\n")
}
